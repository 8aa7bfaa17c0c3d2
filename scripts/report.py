#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures and a static HTML report from the rows.csv and run.json of a results folder.

    scripts/report DIR                  DIR/report/index.html, one file that opens without a network;
                                        DIR/report/plots/ has each picture (SVG, PNG) and its numbers (CSV)
    scripts/report DIR --out OTHER      writes there instead
    scripts/report DIR --open-note      also says how to open it from another machine

Exit codes: 0 written, 2 bad input (no such folder, a broken row), 6 cannot run or write here.
"""
import argparse
import importlib.util
import pathlib
import sys

PACKAGES = ("numpy", "pandas", "matplotlib", "jinja2")


def fail(message: str, status: int) -> int:
    print(f"report: {message}", file=sys.stderr)
    return status


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="results folder with rows.csv (and run.json)")
    parser.add_argument("--out", type=pathlib.Path, help="folder to write to (default: FOLDER/report)")
    parser.add_argument("--open-note", action="store_true", help="say how to open the report")
    args = parser.parse_args(arguments)

    missing = [p for p in PACKAGES if importlib.util.find_spec(p) is None]
    if missing:
        return fail(f"{sys.executable} has no {', '.join(missing)}; run scripts/setup, or set ASSAY_PYTHON to a "
                    "python3 that has them", 6)
    from reporting import page, plots, rows

    out = args.out or args.folder / "report"
    try:
        run = rows.load(args.folder)
        pictures = plots.draw_all(run, out / "plots")
        index = page.write(run, pictures, out)
    except rows.InputError as error:
        return fail(str(error), 2)
    except OSError as error:
        return fail(f"cannot write to {out}: {error.strerror or error}; give a writable folder with --out", 6)
    for warning in run.warnings:
        print(f"report: {warning}", file=sys.stderr)
    print(f"report: {index}")
    if args.open_note:
        print(f"open:   file://{index.resolve()}\n"
              f"        (one file: copy it anywhere, or run `python3 -m http.server -d {out}` and open port 8000)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
