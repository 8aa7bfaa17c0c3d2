#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Looks at the machine code of every NVIDIA GPU kernel in a library: no stack frame, that is, no spilled register and no
array in local memory; in kernels named *_wgmma* products of a warpgroup (HGMMA), and not one wait for every few of them, which
is what ptxas makes of code it cannot keep asynchronous. It prints what each kernel uses. Reads the uncompressed code objects (nvcc --no-compress) in the
library itself, so that it needs no tool of the toolkit; attributes 0x11 (frame size) and 0x2f (registers) of .nv.info are
as cuobjdump and nvdisasm show them.

Usage: check_cubins.py LIBRARY ARCH...     e.g. libassay_cuda.so 80 90
Exit: 0 clean, 1 findings (one line each), 2 wrong use
"""
import pathlib
import re
import struct
import sys

MAGIC = b"\x7fELF\x02\x01\x01"
CUDA_MACHINE = 190
FRAME_SIZE, REGISTERS = 0x11, 0x2F
PRODUCTS, WAITS = "products", "waits"  # of a warpgroup, counted in the code
LEAST_PRODUCTS_PER_WAIT = 4
NAMED_AFTER_PRODUCTS = re.compile("_wgmma(?:[IE]|$)")  # the last part of a symbol, mangled or not


class Unreadable(Exception):
    """The library has no code objects this script can read; the text says why."""


def name_at(table: bytes, offset: int) -> str:
    return table[offset:table.index(b"\0", offset)].decode()


def sections_of(data: bytes, at: int) -> tuple[int, dict[str, tuple[int, bytes]]]:
    """Compute capability (80, 90, ...) and sections {name: (link, bytes)} of the object at `at`."""
    (machine,) = struct.unpack_from("<H", data, at + 18)
    if machine != CUDA_MACHINE:
        return 0, {}
    (table,) = struct.unpack_from("<Q", data, at + 40)
    (flags,) = struct.unpack_from("<I", data, at + 48)
    size, count, names = struct.unpack_from("<3H", data, at + 58)
    headers = [struct.unpack_from("<IIQQQQII", data, at + table + i * size) for i in range(count)]
    no_bits = 8

    def content(header):
        return b"" if header[1] == no_bits else data[at + header[4]: at + header[4] + header[5]]

    name_table = content(headers[names])
    # The second byte in objects of CUDA 13, the first before.
    capability = flags >> 8 & 0xFF or flags & 0xFF
    return capability, {name_at(name_table, h[0]): (h[6], content(h)) for h in headers}


def attributes(info: bytes):
    """(attribute, symbol, value) of those that say one number about one kernel."""
    at = 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == 4:
            if size == 8:
                yield (attribute, *struct.unpack_from("<2I", info, at))
            at += size


def count_products(code: bytes) -> dict[str, int]:
    """HGMMA and WARPGROUP.DEPBAR among instructions of 16 bytes; their opcodes as nvdisasm 13.0 shows them."""
    words = [word for (word, _) in struct.iter_unpack("<QQ", code[: len(code) // 16 * 16])]
    return {PRODUCTS: sum(word & 0x1FF == 0x1F0 for word in words),
            WAITS: sum(word & 0xFFF == 0x9C5 and word >> 47 & 1 for word in words)}


def kernels_of(library: str) -> dict[int, dict[str, dict[int, int]]]:
    """{capability: {symbol: {attribute: value}}} of all code objects in a file."""
    data = pathlib.Path(library).read_bytes()
    found: dict[int, dict[str, dict[int, int]]] = {}
    for match in re.finditer(re.escape(MAGIC), data):
        if match.start() == 0 and data[18:20] != struct.pack("<H", CUDA_MACHINE):
            continue  # the library itself
        capability, sections = sections_of(data, match.start())
        if not sections or ".nv.info" not in sections:
            continue
        symbols, names = sections[".symtab"][1], sections[".strtab"][1]
        for attribute, symbol, value in attributes(sections[".nv.info"][1]):
            if attribute in (FRAME_SIZE, REGISTERS):
                (name,) = struct.unpack_from("<I", symbols, 24 * symbol)
                kernel = name_at(names, name)
                if f".text.{kernel}" in sections:
                    facts = found.setdefault(capability, {}).setdefault(kernel, {})
                    facts[attribute] = value
                    if NAMED_AFTER_PRODUCTS.search(kernel) and PRODUCTS not in facts:
                        facts.update(count_products(sections[f".text.{kernel}"][1]))
    if not found:
        raise Unreadable("no uncompressed code object for an NVIDIA GPU in it; build with --no-compress")
    return found


def check(kernels: dict[int, dict[str, dict[int, int]]], archs: list[int]) -> list[str]:
    lines = []
    for arch in archs:
        if arch not in kernels:
            lines.append(f"no code for sm_{arch}; there is code for: {', '.join(f'sm_{a}' for a in sorted(kernels))}")
            continue
        for name, facts in sorted(kernels[arch].items()):
            if FRAME_SIZE not in facts:
                lines.append(f"sm_{arch} {name}: does not say the size of its stack frame")
            elif facts[FRAME_SIZE]:
                lines.append(f"sm_{arch} {name}: a stack frame of {facts[FRAME_SIZE]} bytes (spilled registers or a local array)")
            if facts.get(PRODUCTS, 1) == 0:
                lines.append(f"sm_{arch} {name}: no product of a warpgroup (HGMMA)")
            elif facts.get(PRODUCTS, 0) < LEAST_PRODUCTS_PER_WAIT * facts.get(WAITS, 0):
                lines.append(f"sm_{arch} {name}: {facts[WAITS]} waits for {facts[PRODUCTS]} products: they run one after the other")
    return lines


def main(arguments: list[str]) -> int:
    if len(arguments) < 2 or not all(a.isdigit() for a in arguments[1:]):
        print(__doc__, file=sys.stderr)
        return 2
    library, archs = arguments[0], [int(a) for a in arguments[1:]]
    try:
        kernels = kernels_of(library)
    except Unreadable as why:
        print(f"{library}: {why}")
        return 1
    for arch in archs:
        for name, facts in sorted(kernels.get(arch, {}).items()):
            products = f"  {facts[PRODUCTS]} products, {facts[WAITS]} waits" if PRODUCTS in facts else ""
            print(f"sm_{arch}  {facts.get(REGISTERS, 0):4} registers  {facts.get(FRAME_SIZE, -1):5} bytes of stack  {name[:120]}{products}")
    found = check(kernels, archs)
    for line in found:
        print(f"FOUND {line}")
    print(f"{sum(len(kernels.get(a, {})) for a in archs)} kernels, {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
