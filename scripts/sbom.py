#!/usr/bin/env python3
"""Writes what a built program consists of, as CycloneDX 1.5: Swift's runtime, Swift packages, and Debian's libraries.

usage: scripts/sbom.py PROGRAM
"""
import datetime
import json
import os
import re
import subprocess
import sys
from urllib.parse import quote


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def component(name, version, url, kind="library"):
    return {"type": kind, "name": name, "version": version, "purl": url}


def swift_packages(package):
    for dependency in package["dependencies"]:
        path = re.sub(r"^https://|\.git$", "", dependency["url"])
        yield component(dependency["identity"], dependency["version"], f"pkg:swift/{path}@{dependency['version']}")
        yield from swift_packages(dependency)


def debian_libraries(program):
    # ldd names libraries below /lib, dpkg files below /usr/lib or /lib: the real path of one is known to it under one of both.
    for path in re.findall(r"(/\S+\.so[^\s)]*)", run("ldd", program)):
        real = os.path.realpath(path)
        for candidate in {path, real, real.removeprefix("/usr")}:
            found = subprocess.run(["dpkg-query", "--search", candidate], capture_output=True, text=True)
            if found.returncode == 0:
                name = found.stdout.split(":")[0]
                version, architecture = run("dpkg-query", "-W", "-f=${Version} ${Architecture}\n", name).split("\n")[0].split()
                yield component(name, version, f"pkg:deb/debian/{name}@{quote(version, safe='')}?arch={architecture}")
                break
        else:
            sys.exit(f"sbom: no package has {path}")


def main():
    program = sys.argv[1]
    version = run(program, "--version").strip()
    compiler = re.search(r"Swift version (\S+)", run("swift", "--version")).group(1)
    parts = [component("swift", compiler, f"pkg:github/swiftlang/swift@swift-{compiler}-RELEASE", "framework")]
    parts += swift_packages(json.loads(run("swift", "package", "show-dependencies", "--format", "json")))
    parts += debian_libraries(program)
    unique = {part["purl"]: part | {"bom-ref": part["purl"]} for part in parts}
    date = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    json.dump({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": date.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {"type": "application", "name": "postern", "version": version, "bom-ref": "postern"},
        },
        "components": [unique[key] for key in sorted(unique)],
        "dependencies": [{"ref": "postern", "dependsOn": sorted(unique)}],
    }, sys.stdout, indent=2)
    print()


main()
