#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Looks at the machine code of every AMD GPU kernel in a library: nothing spilled, nothing in scratch memory, at most
64 KiB of LDS, 64 lanes a wave, expected instructions there. It prints what each kernel uses. Facts of the
notes are described in LLVM's "User Guide for AMDGPU Backend", code object metadata.

Usage: check_isa.py LIBRARY ARCH LLVM_BIN [KERNEL:INSTRUCTION ...]     e.g. libassay_hip.so gfx942 /usr/lib/llvm-19/bin
A KERNEL:INSTRUCTION is two regular expressions: every kernel whose name contains the first (at least one) must
have an instruction that the second matches from its start.
Exit: 0 clean, 1 findings (one line each), 2 wrong use, 77 a tool is missing
"""
import dataclasses
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

MAX_LDS = 64 * 1024
TOOLS = ("llvm-objcopy", "llvm-readelf", "llvm-objdump", "llvm-cxxfilt")
BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"
FIELDS = ("vgpr_count", "agpr_count", "sgpr_count", "vgpr_spill_count", "sgpr_spill_count", "private_segment_fixed_size",
          "group_segment_fixed_size", "wavefront_size")


class Unreadable(Exception):
    """The library has no code objects this script can read; the text says why."""


@dataclasses.dataclass
class Kernel:
    name: str  # demangled, without parameters
    symbol: str
    facts: dict[str, int]
    dynamic_stack: bool


def bundled(data: bytes, arch: str) -> list[bytes]:
    """Code objects for `arch` in a .hip_fatbin section: one bundle per translation unit, one after the other."""
    if data.startswith(b"CCOB"):
        raise Unreadable("the code objects are compressed; build with --no-offload-compress")
    found, targets, at = [], set(), data.find(BUNDLE)
    while at >= 0:
        (count,) = struct.unpack_from("<Q", data, at + len(BUNDLE))
        entry = at + len(BUNDLE) + 8
        for _ in range(count):
            offset, size, name_size = struct.unpack_from("<3Q", data, entry)
            target = data[entry + 24: entry + 24 + name_size].decode()
            entry += 24 + name_size
            if size:
                targets.add(target.rpartition("--")[2])
                if target.rpartition("--")[2].split(":")[0] == arch:
                    found.append(data[at + offset: at + offset + size])
        at = data.find(BUNDLE, entry)
    if not found:
        raise Unreadable(f"no code for {arch}; there is code for: {', '.join(sorted(targets)) or 'nothing'}")
    return found


def kernels_of(notes: str) -> list[Kernel]:
    """Kernels in the output of llvm-readelf --notes: the list below amdhsa.kernels, an item per kernel."""
    text = notes.partition("amdhsa.kernels:")[2].partition("amdhsa.target:")[0]
    kernels = []
    for item in re.split(r"^  - ", text, flags=re.MULTILINE)[1:]:
        # Fields of the kernel itself are indented by four; those of its arguments by more.
        fields = dict(re.findall(r"^(?:    )?\.(\w+): +(\S+)$", item, flags=re.MULTILINE))
        missing = [f for f in FIELDS + ("name",) if f not in fields and f != "agpr_count"]
        if missing:
            raise Unreadable(f"the notes of {fields.get('name', 'a kernel')} do not say {', '.join(missing)}")
        kernels.append(Kernel(fields["name"], fields["name"], {f: int(fields.get(f, 0)) for f in FIELDS},
                              fields.get("uses_dynamic_stack") == "true"))
    return kernels


def instructions_of(disassembly: str) -> dict[str, list[str]]:
    """Instructions by symbol in the output of llvm-objdump -d."""
    code: dict[str, list[str]] = {}
    symbol = None
    for line in disassembly.splitlines():
        if match := re.match(r"^[0-9a-f]+ <(.+)>:$", line):
            symbol = match.group(1)
            code[symbol] = []
        elif symbol and (match := re.match(r"^\s+([a-z]\w+)", line)) and match.group(1) not in ("s_nop", "s_code_end"):
            code[symbol].append(match.group(1))  # the two left out fill the space behind a kernel
    return code


def findings(kernel: Kernel) -> list[str]:
    f = kernel.facts
    found = []
    for kind in ("vgpr", "sgpr"):
        if f[f"{kind}_spill_count"]:
            found.append(f"{f[f'{kind}_spill_count']} {kind.upper()}s are spilled")
    if f["private_segment_fixed_size"]:
        found.append(f"{f['private_segment_fixed_size']} bytes of scratch memory per lane")
    if kernel.dynamic_stack:
        found.append("a stack of unknown size (a call the compiler cannot see through)")
    if f["group_segment_fixed_size"] > MAX_LDS:
        found.append(f"{f['group_segment_fixed_size']} bytes of LDS, at most {MAX_LDS}")
    if f["wavefront_size"] != 64:
        found.append(f"waves of {f['wavefront_size']} lanes, the sources are compiled for 64")
    return found


def read(library: str, arch: str, llvm: pathlib.Path) -> tuple[list[Kernel], dict[str, list[str]]]:
    def tool(name: str, *arguments: str, text: str | None = None) -> str:
        done = subprocess.run([str(llvm / name), *arguments], capture_output=True, text=True, input=text)
        if done.returncode:
            raise Unreadable(f"{name}: {done.stderr.strip()}")
        return done.stdout

    kernels, code = [], {}
    with tempfile.TemporaryDirectory() as folder:
        section = pathlib.Path(folder) / "fatbin"
        tool("llvm-objcopy", "--dump-section", f".hip_fatbin={section}", library, "/dev/null")
        for number, data in enumerate(bundled(section.read_bytes(), arch)):
            file = pathlib.Path(folder) / f"code{number}"
            file.write_bytes(data)
            kernels += kernels_of(tool("llvm-readelf", "--notes", str(file)))
            code |= instructions_of(tool("llvm-objdump", "-d", str(file)))
    names = tool("llvm-cxxfilt", text="\n".join(k.symbol for k in kernels)).splitlines()
    for kernel, name in zip(kernels, names):
        kernel.name = re.sub(r"^void |assay_gpu::|\(anonymous namespace\)::", "", name).partition("(")[0]
    return kernels, code


def check(kernels: list[Kernel], code: dict[str, list[str]], expected: list[str]) -> list[str]:
    found = [f"{k.name}: {text}" for k in kernels for text in findings(k)]
    if not kernels:
        found.append("no kernel in this library")
    for rule in expected:
        where, _, instruction = rule.partition(":")
        named = [k for k in kernels if re.search(where, k.name)]
        if not named:
            found.append(f"no kernel is called {where}, of which {instruction} is expected")
        found += [f"{k.name}: no instruction {instruction}" for k in named
                  if not any(re.match(instruction, i) for i in code.get(k.symbol, []))]
    return found


def main(arguments: list[str]) -> int:
    if len(arguments) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    library, arch, llvm, *expected = arguments
    missing = [t for t in TOOLS if not (pathlib.Path(llvm) / t).exists()]
    if missing:
        print(f"skipped: {llvm} has no {', '.join(missing)}; on Debian install the package llvm-19 (scripts/setup)")
        return 77
    try:
        kernels, code = read(library, arch, pathlib.Path(llvm))
    except Unreadable as why:
        print(f"{library}: {why}")
        return 1
    width = max([len(k.name) for k in kernels] + [6])
    print(f"{arch:{width}}  VGPR AGPR SGPR   LDS scratch  spilled V/S  instructions")
    for k in sorted(kernels, key=lambda k: k.name):
        f = k.facts
        print(f"{k.name:{width}}  {f['vgpr_count']:4} {f['agpr_count']:4} {f['sgpr_count']:4} {f['group_segment_fixed_size']:5} "
              f"{f['private_segment_fixed_size']:7}  {f['vgpr_spill_count']:5}/{f['sgpr_spill_count']:<5}  {len(code.get(k.symbol, [])):12}")
    found = check(kernels, code, expected)
    for line in found:
        print(f"FOUND {line}")
    print(f"{len(kernels)} kernels, {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
