# make demo     train four methods on a built-in task and show which keeps its focus
# make test     what tells you that this copy works
.DEFAULT_GOAL := build
.PHONY: demo build wheel wheel-test release cuda test test-long bench format lint clean setup setup-dev

setup:
	@scripts/setup

setup-dev:
	@scripts/setup --dev

# The program and the libraries; the tests are built by make test.
build: setup
	@cmake --preset release >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
	@cmake --build build/release
	@ln -sfn release/src/tempera/cli/tempera build/tempera

# One wheel with the program, the operators and the Python package, for the torch in .venv: dist/tempera-*.whl. The compiler goes by
# the name that make build calls it by: ccache has what that one compiled.
wheel: setup
	@mkdir -p dist
	@CXX=$${CXX:-c++} .venv/bin/python -m pip wheel . --no-build-isolation --no-deps -w dist -q

# The wheel on bare Debian 12 and 13, without a compiler: needs root and debootstrap.
wheel-test:
	@tools/wheel-test $(lastword $(wildcard dist/tempera-*.whl))

# What a release has, in dist/: sdist, wheel, a tarball of the program and the C++ package, a list of components, checksums.
release: build
	@tools/release

# The CUDA kernels and their tests, for every GPU from sm_80 on: needs nvcc and no GPU. For one alone, in a sixth of the time:
# make cuda CUDA_ARCHITECTURES=90
cuda:
	@mkdir -p build
	@cmake --preset cuda-kernels $(if $(CUDA_ARCHITECTURES),-D,-U)CMAKE_CUDA_ARCHITECTURES$(if $(CUDA_ARCHITECTURES),=$(CUDA_ARCHITECTURES)) >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
	@cmake --build build/cuda-kernels --target cuda

demo: build
	@build/tempera compare

test: setup
	@scripts/test

test-long: setup-dev
	@scripts/test --long

bench: build
	@build/tempera bench attention

format: setup-dev
	@scripts/format

lint: setup-dev
	@python3 tools/check_layers.py
	@scripts/format --check
	@.venv/bin/python -m mypy
	@scripts/lint

clean:
	rm -rf build
