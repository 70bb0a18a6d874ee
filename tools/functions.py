"""Finds the functions of C++ and CUDA sources, to tell how long they are."""

import re

KEEP_NEWLINES = re.compile(r"[^\n]")
# Comments, texts, characters and preprocessor lines: braces in them mean nothing.
OPAQUE = re.compile(
    r'R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"'
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|(?<![0-9a-fA-F])'(?:[^'\\\n]|\\.)+'"
    r"|//[^\n]*"
    r"|/\*.*?\*/"
    r"|^[ \t]*#(?:[^\n\\]|\\\n|\\.)*",
    re.DOTALL | re.MULTILINE)
SCOPE = re.compile(r"\b(?:namespace|class|struct|union|enum|extern)\b")
NAME = re.compile(r"(?!(?:__launch_bounds__|alignas|decltype|requires|noexcept)\b)\b([~\w:]+(?:\s*operator\s*\S+?)?)\s*\(")
# What may stand between the arguments of a function and its body.
BODY = re.compile(r"(?:[)}]|\b(?:const|noexcept|override|final|mutable|try)|->[^;=]*)\s*$")


def blank(text):
    """The text with everything opaque as spaces; lines stay where they are."""
    return OPAQUE.sub(lambda match: KEEP_NEWLINES.sub(" ", match.group()), text)


def functions(text):
    """Yields (name, first line, lines) for each function with a body; lambdas count as part of theirs."""
    text = blank(text)
    inside = []  # of each open brace: "scope", "list" (an initialiser between arguments and body), or (name, line)
    begin = 0  # of what may become the head of a function
    for match in re.finditer(r"[{};]", text):
        place, mark = match.start(), match.group()
        at_scope = not inside or inside[-1] == "scope"
        if mark == "{":
            head = text[begin:place]
            kind = kind_of(head) if at_scope else "inner"
            if kind == "function":
                start = begin + len(head) - len(head.lstrip())
                inside.append((name_of(head), text.count("\n", 0, start) + 1))
            else:
                inside.append(kind)
            if kind == "scope":
                begin = place + 1
        elif mark == "}":
            opened = inside.pop() if inside else "inner"
            if isinstance(opened, tuple):
                name, line = opened
                yield name, line, text.count("\n", 0, place) + 2 - line
            if opened != "list" and (not inside or inside[-1] == "scope"):
                begin = place + 1
        elif at_scope:
            begin = place + 1


def name_of(head):
    found = NAME.search(head)
    return found.group(1) if found else "a function"


def kind_of(head):
    """What a brace behind these words at namespace or class scope opens: a scope, a function, or a list of values."""
    without_templates = re.sub(r"\btemplate\s*<[^{}]*?>\s*(?=\w|\[)", "", head)
    before_arguments = without_templates.split("(")[0]
    if "(" in head and not re.search(r"[^=!<>]=[^=]", before_arguments):
        return "function" if BODY.search(head) else "list"
    return "scope" if SCOPE.search(before_arguments) else "list"
