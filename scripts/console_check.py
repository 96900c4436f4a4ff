#!/usr/bin/env python3
"""Checks the console in headless Chromium.

usage: scripts/console_check.py [--binary FILE] [--only TEXT] [--screenshots DIRECTORY] [--times] [--list]

Most checks serve the console by a stand-in for a gateway (scripts/console/stand_in.py), which can be in any state and have
any data. With --binary, those of scripts/console/real.py run against that gateway with simulated upstreams. --only runs the
checks whose name contains the text. --screenshots makes pictures of every view in both themes and widths, and --times
measures that gateway's console; neither checks anything.

Needs chromium, chromium-driver, and from PyPI selenium and axe-playwright-python; `make console-check` installs them.
"""

import argparse
import pathlib
import statistics
import sys
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "console"))

import browser  # noqa: E402
import actions  # noqa: E402
import behavior  # noqa: E402
import hostile  # noqa: E402
import keyboard  # noqa: E402
import looks  # noqa: E402
import payloads  # noqa: E402
import states  # noqa: E402

SUBJECTS = [looks, states, behavior, keyboard, hostile, payloads, actions]


def checks(subjects):
    for subject in subjects:
        for name, function in vars(subject).items():
            if name.startswith("check_") and function.__module__ == subject.__name__:
                yield f"{subject.__name__}: {name.removeprefix('check_').replace('_', ' ')}", function


def run(name, function, *arguments):
    started = time.monotonic()
    try:
        function(*arguments)
    except Exception as error:
        reason = str(error) if isinstance(error, browser.Failure) else traceback.format_exc()
        print(f"  FAILED {name}\n{reason}", flush=True)
        return False
    print(f"  {name} ({time.monotonic() - started:.1f} s)", flush=True)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--screenshots", type=pathlib.Path)
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        for name, _ in checks(SUBJECTS):
            print(name)
        return 0
    with browser.chromium() as page:
        if options.screenshots:
            looks.screenshots(page, options.screenshots)
            return 0
        if options.times:
            import real

            for what, values, unit in real.times(page, options.binary):
                spread = f"({min(values):.0f}–{max(values):.0f})"
                print(f"{what}: {statistics.median(values):.0f} {unit} {spread}")
            return 0
        results = [run(name, function, page) for name, function in checks(SUBJECTS) if options.only in name]
        if options.binary:
            import real

            results += [
                run(name, function, page, options.binary) for name, function in checks([real]) if options.only in name
            ]
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) and results else 1


if __name__ == "__main__":
    sys.exit(main())
