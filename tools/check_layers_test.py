"""The layering check must fail on each kind of fault, and pass a tree without any."""

import contextlib
import io
import pathlib
import tempfile
import unittest

import check_layers

HEADER = "#pragma once\n"


def check(files):
    """The exit code and the output for a tree made of these files."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            code = check_layers.main([folder])
    return code, output.getvalue()


def source(layer, include):
    return {f"src/tempera/{layer}/a.cc": f"#include {include}\n"}


class CheckLayers(unittest.TestCase):
    def assert_passes(self, files):
        self.assertEqual(check(files), (0, ""))

    def assert_fails(self, files, words):
        code, output = check(files)
        self.assertEqual(code, 1, output)
        self.assertIn(words, output)

    def test_includes_downwards_pass(self):
        for layer, other in [("config", "base"), ("kernels", "base"), ("ops", "kernels"), ("nn", "temperature"),
                             ("train", "data"), ("train", "eval"), ("eval", "data"), ("study", "train"),
                             ("study", "plot"), ("cli", "study"), ("base", "base")]:
            self.assert_passes(source(layer, f'"tempera/{other}/x.h"'))

    def test_includes_upwards_fail(self):
        for layer, other in [("base", "config"), ("kernels", "config"), ("io", "config"), ("ops", "temperature"),
                             ("nn", "data"), ("data", "eval"), ("data", "train"), ("eval", "train"),
                             ("plot", "config"), ("generate", "train"), ("nn", "plot"), ("study", "cli")]:
            self.assert_fails(source(layer, f'"tempera/{other}/x.h"'), f"{layer} may not include {other}")

    def test_torch_only_where_it_may_be(self):
        for header in ("<torch/torch.h>", "<ATen/ATen.h>", "<c10/util/BFloat16.h>"):
            for layer in ("base", "config", "io", "kernels", "plot"):
                self.assert_fails(source(layer, header), "no torch")
            self.assert_passes(source("ops", header))

    def test_unknown_layers_fail(self):
        self.assert_fails(source("bsae", "<vector>"), "no layer bsae")
        self.assert_fails(source("ops", '"tempera/bsae/x.h"'), "no layer bsae")

    def test_headers_need_a_guard(self):
        self.assert_passes({"src/tempera/base/a.h": HEADER})
        self.assert_passes({"src/tempera/kernels/a-inl.h": "#ifdef HWY_TARGET_TOGGLE\n#endif\n"})
        self.assert_fails({"src/tempera/base/a.h": "int a();\n"}, "no #pragma once")

    def test_paths_start_at_the_root(self):
        files = {"src/tempera/base/b.h": HEADER, **source("base", '"b.h"')}
        self.assert_fails(files, "write the path from src/")

    def test_long_files(self):
        self.assert_passes({"src/tempera/base/a.cc": "\n" * 500})
        self.assert_fails({"src/tempera/base/a.cc": "\n" * 501}, "501 lines")
        self.assert_fails({"tests/a_test.py": "\n" * 501}, "501 lines")

    def test_long_functions(self):
        def function(head, lines):
            return head + " {\n" + "  f();\n" * (lines - 2) + "}\n"

        heads = ["void f()", "template <class T = std::vector<int>>\nT f(T x = T{}) noexcept", "A::A() : b_{1}, c_(2)",
                 "auto f() -> int", "template <class T>\n__global__ void __launch_bounds__(128) f(T x)",
                 "namespace a {\nstruct B {\n  int c() const"]
        for head in heads:
            own = head.count("\n") + 1 if "namespace" not in head else 1
            end = "};\n}\n" if "namespace" in head else ""
            fits = function(head, 60 - own + 1) + end
            self.assert_passes({"src/tempera/base/a.cc": fits})
            long = function(head, 60 - own + 2) + end
            self.assert_fails({"src/tempera/base/a.cc": long}, "has 61 lines")
            self.assert_passes({"src/tempera/base/a_test.cc": long})
        opaque = 'int f() { return g("{", \'{\', R"x({ )")x", 1\'000); }  // {\n/* { */\n#define A {\n'
        self.assert_passes({"src/tempera/base/a.cc": opaque * 30})
        self.assert_fails({"src/tempera/kernels/cuda/a.cu": function("void f()", 61)}, "has 61 lines")


if __name__ == "__main__":
    unittest.main()
