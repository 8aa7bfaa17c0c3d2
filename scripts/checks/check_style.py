#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what CONTRIBUTING.md promises and a formatter does not: ASCII, SPDX line, file length, no printing or
exiting below harness/cli, no op known by name outside harness/ops, switches that name every case, no machine paths, links in the READMEs that lead
somewhere, a README in every folder, names of kernels, names that two tests of a module give to different things.

Usage: check_style.py [ROOT]     exit 0 clean, 1 violations (one line each)
"""
import collections
import fnmatch
import pathlib
import re
import subprocess
import sys

CODE = {".cpp", ".hpp", ".h", ".cu", ".cuh", ".inl", ".py"}
MAX_LINES, MAX_KERNEL_LINES = 450, 600
PRINTING = re.compile(r"\b(std::cout|std::cerr|std::printf|fprintf|printf|puts|fmt::print|std::exit|exit|abort|std::abort|_exit|_Exit|quick_exit)\s*(\(|<<)")
PATHS = re.compile(r"(?<![\w.])/(work|root|farm|home/[a-z]+)/")
# An op is asked through its description (harness/ops/op.hpp), so that a new one is found by everybody.
OP_BY_NAME = re.compile(r"\bASSAY_OP_[A-Z0-9_]+\b|\bops::\w+")
# What a stage of a step may misread follows from its op.
OP_HOMES = ("harness/ops/", "harness/abi/", "harness/explain/stages/")
OP_BY_NAME_ALLOWED = {
    "harness/problem/problem.hpp": "the op of a Problem nobody filled in",
    "harness/scenario/scenario.hpp": "the same of a Scenario",
    "harness/mutants/catalogue.cpp": "the C catalogue of wrong kernels has a field for each of two ops",
}
# A switch over what the C header enumerates names every case, so that a new one is found by the compiler (-Werror=switch).
OPEN_SWITCH = re.compile(r"\bswitch \((?!static_cast<assay_)(?:[^{}]*)\) \{\s*case ASSAY_(MASK|ALIBI|SCALE|LAYOUT|TABLE)_")
ENUM_CASE = re.compile(r"\bcase ASSAY_(?:MASK|ALIBI|SCALE|LAYOUT|TABLE)_\w+:")
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)]*)?\)")
# Paths from the root, and names of source files, in comments and READMEs. NAME and x stand for any name.
NAMED_PATH = re.compile(r"(?<![\w/.$}<{-])((?:harness|kernels|reference|scenarios|scripts|cmake)/[\w./*-]*[\w*])")
NAMED_FILE = re.compile(r"(?<![\w/.*<{$-])([a-z][a-z0-9_]*\.(?:cpp|hpp|cu|py|suite|cmake|edit))\b")
ANY_NAME = re.compile(r"NAME|(^|/)(x|other)(_\w+)?\.\w+$")
COMMENT = {".cpp": "//", ".hpp": "//", ".h": "*", ".cu": "//", ".py": "#", ".cmake": "#", ".suite": "#", ".txt": "#", "": "#"}
FOREIGN = ("scenarios/peers/", "harness/mutants/", "scripts/checks/test_checks.py")  # name files of other projects, or made up
# op_method_arch, the method only where an op has several kernels.
OP_LIST = pathlib.Path(__file__).resolve().parents[2] / "harness/ops/op_list.hpp"
OPS = "|".join(re.findall(r"X\((\w+), ASSAY_OP_", OP_LIST.read_text(encoding="utf-8")))
KERNEL = re.compile(rf'"((?:{OPS})(?:_[a-z0-9]+)?_([a-z0-9]+))"')
# The steps that a library is made of kernels for, a row each of one table.
STEPS, STEP = "kernels/common/pipelines.cpp", re.compile(r'\{"(\w+)", &k\w+\}')
ARCH_OF_FOLDER = {"cpu": "cpu", "portable": "gpu", "sm90": "sm90", "cdna": "cdna"}
# What a test declares for itself alone: a type, a value, a function (of any parameters: default ones make two of a name ambiguous).
OWN_NAME = re.compile(r"(?:(?:struct|class|enum class|enum) (\w+) [:{]|(?:[\w:<>,*&\[\]]+ )+[*&]*(\w+)(?:\([^)]*\)?)?(?:\[\])?(?: [={]|\{|;|$))")


def files(root: pathlib.Path) -> list[str]:
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard"], capture_output=True,
                            text=True, check=True)
    return [f for f in listed.stdout.splitlines() if (root / f).is_file()]


def check_code(name: str, text: str) -> list[str]:
    found = []
    lines = text.splitlines()
    if "SPDX-License-Identifier: Apache-2.0" not in "\n".join(lines[:5]):
        found.append(f"{name}:1: no SPDX line in the first five lines")
    limit = MAX_KERNEL_LINES if name.startswith("kernels/") else MAX_LINES
    if len(lines) > limit:
        found.append(f"{name}:{limit}: {len(lines)} lines, more than {limit}: split by concept")
    library = name.startswith(("harness/", "reference/", "kernels/")) and not name.startswith("harness/cli/")
    test = re.search(r"_(test|bench|fuzz)\.cpp$|/testing/", name)
    knows_ops = (not name.startswith("harness/") or name.startswith(OP_HOMES) or name in OP_BY_NAME_ALLOWED or test
                 or name.endswith(".py"))
    for number, line in enumerate(lines, 1):
        if not line.isascii():
            found.append(f"{name}:{number}: not ASCII")
        code = line.split("//")[0]
        if not knows_ops and OP_BY_NAME.search(code):
            found.append(f"{name}:{number}: knows an op by name; ask its description (harness/ops/op.hpp)")
        if library and not test and not name.endswith(".py") and PRINTING.search(code):
            # A forked child that could not become a worker ends itself: such a line says so.
            if "style: process end" not in line:
                found.append(f"{name}:{number}: prints or exits below harness/cli")
    return found


def check_switches(name: str, text: str) -> list[str]:
    """Switches over masks, biases, scales, layouts and tables: over the enum, without a default."""
    found = []
    if re.search(r"_test\.cpp$|/testing/|/test_\w+\.hpp$|_cases\.hpp$", name):
        return found
    for match in OPEN_SWITCH.finditer(text):
        found.append(f"{name}:{text.count(chr(10), 0, match.start()) + 1}: switch over an int32_t: static_cast it to the enum, or the compiler misses a new case")
    for match in re.finditer(r"^( *)switch \(static_cast<assay_(?:mask|alibi|scale|layout|table)>", text, re.M):
        body = text[match.end():]
        end = re.search(rf"^{match.group(1)}}}", body, re.M)
        body = body[:end.start()] if end else body
        default = re.search(rf"^{match.group(1)}  default:", body, re.M)
        if ENUM_CASE.search(body) and default:
            line = text.count(chr(10), 0, match.end() + default.start()) + 1
            found.append(f"{name}:{line}: default in a switch over an enum of the C header: name the cases, so that a new one is found")
    return found


def check_kernel_names(root: pathlib.Path, name: str, text: str) -> list[str]:
    """Names that a file of a folder of kernels registers: they end in the folder's arch, and its README says where they are."""
    folder = pathlib.PurePosixPath(name).parts[1]
    arch, readme = ARCH_OF_FOLDER[folder], root / "kernels" / folder / "README.md"
    known = readme.read_text(encoding="utf-8") if readme.is_file() else ""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        for kernel, suffix in KERNEL.findall(line):
            if suffix != arch:
                found.append(f"{name}:{number}: {kernel} is called op_method_arch, and the arch of kernels/{folder} is {arch}")
            if f"`{kernel}`" not in known:
                found.append(f"{name}:{number}: {kernel} is not in the table of kernels/{folder}/README.md")
    return found


def check_step_names(root: pathlib.Path, text: str) -> list[str]:
    """Steps of the table of pipelines that the README of a folder which makes them all does not name."""
    found = []
    for folder in ("cpu", "portable"):
        readme = (root / "kernels" / folder / "README.md").read_text(encoding="utf-8")
        steps = [f"step_{name}_{ARCH_OF_FOLDER[folder]}" for name in STEP.findall(text)]
        found += [f"{STEPS}:1: {step} is not in the table of kernels/{folder}/README.md" for step in steps if f"`{step}`" not in readme]
    return found


def check_names(name: str, text: str, names: set[str], folders: set[str], bases: set[str]) -> list[str]:
    """Files and folders that comments (of a README: all lines) name and that do not exist."""
    suffix = pathlib.PurePosixPath(name).suffix
    if name.startswith(FOREIGN) or (suffix != ".md" and suffix not in COMMENT):
        return []
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        said = line if suffix == ".md" else line[line.find(COMMENT[suffix]):] if COMMENT[suffix] in line else ""
        for path in NAMED_PATH.findall(said):
            exists = path in folders or path in names or any(fnmatch.fnmatch(n, path + "*") for n in names)
            if not exists and not ANY_NAME.search(path):
                found.append(f"{name}:{number}: names {path}, which does not exist")
        for file in NAMED_FILE.findall(said):
            if file not in bases and not ANY_NAME.search(file):
                found.append(f"{name}:{number}: names {file}, and no file is called that")
    return found


def check_own_names(root: pathlib.Path, tests: list[str]) -> list[str]:
    """Names of unnamed namespaces that a second test of the module declares: where tests are joined they meet (cmake/AssayModule.cmake)."""
    found, first = [], {}
    for name in tests:
        parts = pathlib.PurePosixPath(name).parts
        module = parts[0] if parts[0] == "reference" else "/".join(parts[:2])
        inside = False
        for number, line in enumerate((root / name).read_text(encoding="utf-8").splitlines(), 1):
            if line.startswith(("namespace {", "}  // namespace")):
                inside = line.startswith("namespace {")
            own = OWN_NAME.match(line) if inside and not line.startswith(("using ", "namespace ")) else None
            if own:
                what = own.group(1) or own.group(2)
                where = first.setdefault((module, what), name)
                if where != name:
                    found.append(f"{name}:{number}: {what} is a name of {where} too; tests of a module are compiled together")
    return found


def check_types(root: pathlib.Path, sources: list[str]) -> list[str]:
    """A type with a name that all files share is defined once in the program: of two the linker keeps the functions of one, for objects of both."""
    places = collections.defaultdict(list)
    for name in sources:
        text = re.sub(r"^namespace \{\n.*?^\}  // namespace$", lambda m: "\n" * m[0].count("\n"), (root / name).read_text(encoding="utf-8"), flags=re.S | re.M)
        inside = re.search(r"^namespace ([\w:]+) \{", text, re.M)
        for match in re.finditer(r"^(?:struct|class|enum|enum class) (\w+)(?: final)?(?: : [^{;\n]*)? \{", text, re.M):
            number = text.count("\n", 0, match.start()) + 1
            places[inside and inside[1], match[1]].append(f"{name}:{number}")
    return [f"{each[-1]}: {name} is defined in {each[0]} too" for (_, name), each in sorted(places.items(), key=str) if len(each) > 1]


def check(root: pathlib.Path) -> list[str]:
    found = []
    names = files(root)
    known = set(names)
    every_folder = {str(p) for n in names for p in pathlib.PurePosixPath(n).parents}
    bases = {pathlib.PurePosixPath(n).name for n in names}
    for name in names:
        path = root / name
        if path.suffix in CODE or name in {"scripts/run", "scripts/test", "scripts/setup", "scripts/build", ".ci/run"}:
            found += check_code(name, path.read_text(encoding="utf-8"))
            if name.startswith(("harness/", "reference/")) and path.suffix in {".cpp", ".hpp"}:
                found += check_switches(name, path.read_text(encoding="utf-8"))
        parts = pathlib.PurePosixPath(name).parts
        if parts[0] == "kernels" and parts[1] in ARCH_OF_FOLDER and path.suffix == ".cpp" and not re.search(r"_(test|bench)\.cpp$", name):
            found += check_kernel_names(root, name, path.read_text(encoding="utf-8"))
        if name == STEPS:
            found += check_step_names(root, path.read_text(encoding="utf-8"))
        if path.suffix in CODE | {".md", ".txt", ".suite", ".cmake", ".yml", ".json", ""} and path.stat().st_size < 2_000_000:
            text = path.read_text(encoding="utf-8", errors="replace")
            if name != "scripts/checks/check_style.py":
                for number, line in enumerate(text.splitlines(), 1):
                    if PATHS.search(line):
                        found.append(f"{name}:{number}: names a path of one machine")
            if not name.startswith("results/") or path.name == "README.md":
                found += check_names(name, text, known, every_folder, bases)
            if path.suffix == ".md":
                for link, _ in LINK.findall(text):
                    if "://" not in link and not link.startswith("mailto:") and not (path.parent / link).exists():
                        found.append(f"{name}: link to {link}, which does not exist")
    # Other folders have a program a file.
    joined = re.compile(r"(harness|reference)/.*_test\.cpp|kernels/faulty/\w+_test\.cpp")
    found += check_own_names(root, [n for n in names if joined.fullmatch(n)])
    found += check_types(root, [n for n in names if re.fullmatch(r"(harness|reference)/.*\.[ch]pp", n) and "/testing/" not in n and not n.endswith("_test.cpp")])
    folders = {str(pathlib.PurePosixPath(n).parent) for n in names if pathlib.PurePosixPath(n).suffix in CODE | {".suite"}}
    for folder in sorted(folders):
        parts = pathlib.PurePosixPath(folder).parts
        if not any((root / pathlib.PurePosixPath(*parts[: i]) / "README.md").exists() for i in range(len(parts), max(0, len(parts) - 2), -1)):
            found.append(f"{folder}: no README.md here or one level up")
    return found


if __name__ == "__main__":
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2])
    problems = check(root)
    print("\n".join(problems) if problems else "style: clean")
    sys.exit(1 if problems else 0)
