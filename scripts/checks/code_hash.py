#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A hash of code as it lies here, committed or not: of the files that git lists below some folders, with what each holds. Notes of what was seen to pass
(results/seen_whole.txt, results/looked_at.txt) hold such hashes.

Usage: code_hash.py ROOT REGEX FOLDER...        files whose path REGEX finds; exit 1 where there are none, as outside of a repository
"""
import hashlib
import pathlib
import re
import subprocess
import sys


def code_hash(root, folders, keep, line="{file} {hash}"):
    """None outside of a repository, and where no file is kept. `line` is what is hashed of each file."""
    done = subprocess.run(["git", "-C", root, "ls-files", "-z", "--", *folders], capture_output=True, text=True)
    files = sorted(f for f in done.stdout.split("\0") if f and keep(f))
    if done.returncode != 0 or not files:
        return None
    total = hashlib.sha256()
    for file in files:
        path = pathlib.Path(root) / file
        total.update((line.format(file=file, hash=hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "gone") + "\n").encode())
    return total.hexdigest()


def main() -> int:
    if len(sys.argv) < 4:
        print(__doc__, file=sys.stderr)
        return 2
    root, kept, *folders = sys.argv[1:]
    # As sha256sum prints it.
    found = code_hash(root, folders, re.compile(kept).search, "{hash}  {file}")
    print(found or "", end="\n" if found else "")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
