#!/usr/bin/env python3
"""Uses what `make dist`, `make deb` and `make image` have made, as their users do, and validates the manifests for Kubernetes.

usage: scripts/package_check.py DIRECTORY

Needs root: the package is installed in a Debian system of its own below a temporary directory, and the image runs in a namespace
with a read-only root. Everything listens on loopback.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile

from harness import ROOT, Failure, Process, call, free_port, until

MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
EVENT = '{"timestamp":1433004485870,"sourceId":"device-1","eventName":"packaged"}'


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=600, **options)
    if done.returncode != 0:
        raise Failure(f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def check(condition, what):
    if not condition:
        raise Failure(what)
    print("ok    " + what)


def only(directory, pattern):
    found = sorted(directory.glob(pattern))
    if len(found) != 1:
        raise Failure(f"{len(found)} files match {pattern} in {directory}, expected 1")
    return found[0]


def check_archive(made, work):
    run("sha256sum", "--check", "SHA256SUMS", cwd=made)
    archive = only(made, "postern-*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(work, filter="data")
    root = work / archive.name.removesuffix(".tar.gz")
    binary = root / "usr/local/bin/postern"
    # Without the toolchain: nothing of Swift on the path, no variable that names a library.
    version = run(binary, "--version", env={"PATH": "/usr/bin:/bin"}).strip()
    check(version in archive.name, f"the archive has postern {version}")
    check(binary.stat().st_size <= 60 * 2**20, f"the binary has {binary.stat().st_size / 2**20:.1f} MiB, at most 60")
    check("swift" not in run("ldd", binary), "it needs no library of Swift")
    for page in ("man1/postern.1", "man1/postern-simulate.1", "man5/postern.json.5"):
        text = run("man", "--local-file", root / "usr/local/share/man" / page)
        check(len(text) > 500, f"{page} is a man page")
    shells = {"bash": ("bash", "bash-completion/completions/postern"), "zsh": (None, "zsh/site-functions/_postern"),
              "fish": (None, "fish/vendor_completions.d/postern.fish")}
    for shell, (parser, path) in shells.items():
        file = root / "usr/local/share" / path
        if parser:
            run(parser, "-n", file)
        check("outbox" in file.read_text(), f"completions for {shell}")
    parts = json.loads(only(made, "*.cdx.json").read_text())
    names = {part["name"] for part in parts["components"]}
    check({"swift", "swift-log", "swift-crypto", "libmicrohttpd12", "libcurl4", "libsqlite3-0", "libpq5", "libsimdjson14"} <= names,
          f"the list of parts has {len(names)} of them")
    check_repeated("scripts/dist.sh", work, archive)


def check_repeated(script, work, *files):
    """What a script makes once more has the same bytes."""
    run(ROOT / script, work / "again")
    for file in files:
        check((work / "again" / file.name).read_bytes() == file.read_bytes(), f"{file.name}, made again, has the same bytes")


class Gateway(Process):
    """A gateway in another root, whose message store is kept between runs."""

    def __init__(self, prefix, arguments, work, port):
        self.port = port
        super().__init__([*prefix, "/usr/bin/env", f"POSTERN_SERVER_PORT={port}", *arguments], work / "gateway.log")
        until(lambda: self.check_alive() and self.is_ready(), 20, "gateway is ready")

    def is_ready(self):
        with contextlib.suppress(OSError):
            return call(self.port, "GET", "/readyz")[0] == 200

    def end(self):
        if self.stop() != 0:
            raise Failure(f"the gateway ended with {self.child.returncode}: {self.log.read_text()[-2000:]}")


def post(port):
    status, _, body = call(port, "POST", "/v1/samsara/event", EVENT, {"Content-Type": "application/json"})
    if status != 202:
        raise Failure(f"POST: {status} {body.decode()}")
    return json.loads(body)["id"]


def state(port, message):
    return json.loads(call(port, "GET", f"/v1/messages/{message}")[2])["state"]


@contextlib.contextmanager
def mounted(root):
    """/proc and /dev in another root."""
    for name in ("proc", "dev"):
        run("mount", "--bind", "/" + name, root / name)
    try:
        yield
    finally:
        for name in ("proc", "dev"):
            run("umount", root / name)


def check_package(made, work):
    package = only(made, "postern_*.deb")
    check_repeated("scripts/package-deb.sh", work, package)
    root = work / "debian"
    mirrors = [f"deb {MIRROR} bookworm main", f"deb {MIRROR} bookworm-updates main", f"deb {MIRROR}-security bookworm-security main"]
    run("mmdebstrap", "--quiet", "--variant=minbase", "--include=systemd-standalone-sysusers,systemd-standalone-tmpfiles",
        "bookworm", root, *mirrors)
    newer = pathlib.Path(run(ROOT / "scripts/package-deb.sh", work / "newer", "9.0").strip())
    for file in (package, newer):
        shutil.copy(file, root / file.name)
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")

    def apt(*arguments):
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"}
        return run("chroot", root, "apt-get", "--yes", "--quiet", *arguments, env=environment)

    port = free_port()
    as_postern = ["chroot", "--userspec=postern:postern", root]
    serve = ["POSTERN_OUTBOX_PATH=/var/lib/postern/postern.sqlite", "postern", "serve", "--config", "/etc/postern/postern.json"]
    with mounted(root):
        apt("update")
        apt("install", f"/{package.name}")
        (root / "etc/postern/postern.json").write_text('{"upstreams": {"samsara": {"url": "http://127.0.0.1:1"}}}\n')
        with Gateway(as_postern, serve, work, port) as gateway:
            message = post(port)
            gateway.end()
        check(True, "the package is installed with all that it needs, and runs as the user postern")
        apt("install", "-o", "Dpkg::Options::=--force-confold", f"/{newer.name}")
        check("127.0.0.1:1" in (root / "etc/postern/postern.json").read_text(), "an upgrade keeps the configuration")
        with Gateway(as_postern, serve, work, port) as gateway:
            check(state(port, message) == "queued", "an upgrade keeps the messages")
            gateway.end()
        apt("remove", "postern")
        check(not (root / "usr/bin/postern").exists() and (root / "etc/postern/postern.json").exists(),
              "a removal keeps the configuration")
        said = apt("purge", "postern")
        check(not (root / "etc/postern").exists(), "a purge deletes the configuration")
        check((root / "var/lib/postern/postern.sqlite").exists() and "was kept" in said, "and keeps the messages, and says so")


def check_image(made, work):
    archive = only(made, "postern-*.docker.tar")
    check_repeated("deploy/image.sh", work, archive, only(made, "postern-*.oci.tar"))
    root = work / "image"
    root.mkdir()
    with tarfile.open(archive) as image:
        manifest = json.load(image.extractfile("manifest.json"))[0]
        text = image.extractfile(manifest["Config"]).read()
        for layer in manifest["Layers"]:
            with tarfile.open(fileobj=image.extractfile(layer)) as tar:
                tar.extractall(root, filter="fully_trusted")
    check(hashlib.sha256(text).hexdigest() + ".json" == manifest["Config"], "the image has the digest of its configuration")
    config = json.loads(text)["config"]
    size = int(run("du", "--summarize", "--bytes", root).split()[0])
    check(size <= 150 * 2**20, f"its files have {size / 2**20:.0f} MiB, at most 150")
    version = archive.name.split("-")[1]
    check(config["Labels"]["org.opencontainers.image.version"] == version and config["Labels"]["org.opencontainers.image.title"],
          f"its labels name version {version}")
    check(config["User"] == "10001:10001" and "/data" in config["Volumes"] and config["StopSignal"] == "SIGTERM",
          "it runs as user 10001, with a volume /data")
    check(config["Healthcheck"]["Test"] == ["CMD", "postern", "healthcheck", "--config", "/etc/postern/postern.json"],
          "it has a health check")

    # What a runtime does with `--read-only --tmpfs /tmp`: the root cannot be written to, /data can.
    data = work / "data"
    data.mkdir()
    os.chown(data, 10001, 10001)
    script = 'mount --bind "$0" "$0" && mount --bind "$1" "$0/data" && mount -t tmpfs none "$0/tmp" && mount --bind /dev "$0/dev" ' \
        '&& mount -t proc proc "$0/proc" && mount -o remount,bind,ro "$0" && shift && root=$0 && ' \
        'exec chroot --userspec=10001:10001 "$root" "$@"'
    enter = ["unshare", "--mount", "/bin/sh", "-c", script, root, data]
    port = free_port()
    settings = [f"POSTERN_SERVER_PORT={port}", "POSTERN_OUTBOX_PATH=/data/postern.sqlite", "POSTERN_SERVER_HOST=127.0.0.1",
                "POSTERN_UPSTREAMS_SAMSARA_URL=http://127.0.0.1:1", "POSTERN_OUTBOX_ENCRYPTION_KEY=" + "5a" * 32]

    def inside(*arguments):
        return [*enter, "/usr/local/bin/postern", *arguments, "--config", "/etc/postern/postern.json"]

    environment = dict(setting.split("=", 1) for setting in settings)

    def start():
        gateway = Process(inside("serve"), work / "image.log", env=environment | {"PATH": os.environ["PATH"]})
        until(lambda: gateway.check_alive() and ready(), 20, "the gateway of the image is ready")
        return gateway

    def ready():
        with contextlib.suppress(OSError):
            return call(port, "GET", "/readyz")[0] == 200

    with start() as gateway:
        message = post(port)
        run(*inside("healthcheck"), env=environment | {"PATH": os.environ["PATH"]})
        check(gateway.stop(20) == 0, "it takes a message on a read-only root, is healthy, and stops within its grace period")
    with start() as gateway:
        check(state(port, message) == "queued", "it keeps the message over a restart")
        gateway.child.send_signal(signal.SIGKILL)
        gateway.child.wait()
    with start():
        check(state(port, message) == "queued", "and over a kill")


def check_restricted(pod):
    """What the profile `restricted` of the Pod Security Standards wants of a pod that may use no other user or volume."""
    context, container = pod["securityContext"], pod["containers"][0]
    allowed = {"configMap", "secret", "emptyDir", "persistentVolumeClaim", "name"}
    own = container["securityContext"]
    check(context["runAsNonRoot"] and context["runAsUser"] != 0 and context["seccompProfile"]["type"] == "RuntimeDefault"
          and not {"hostNetwork", "hostPID", "hostIPC"} & set(pod) and all(set(volume) <= allowed for volume in pod["volumes"])
          and own["allowPrivilegeEscalation"] is False and own["capabilities"] == {"drop": ["ALL"]} and "privileged" not in own
          and len(pod["containers"]) == 1 and "hostPort" not in str(container), "the pod fits the profile restricted")


def overlays():
    """Those that docs/deploying.md prints."""
    blocks = (ROOT / "docs/deploying.md").read_text().split("```yaml\n")[1:]
    return [block for block in (block.split("```")[0] for block in blocks) if block.startswith("patches:")]


def check_manifests(work):
    directory = ROOT / "deploy/kubernetes"
    rendered = work / "kubernetes.yaml"
    rendered.write_text(run("kubectl", "kustomize", directory))
    validate = ROOT / ".build/python/bin/kubernetes-validate"
    run(validate, "--strict", "--quiet", rendered, directory / "secret.example.yaml", directory / "backup.yaml",
        directory / "deployment.yaml")
    check(True, "Kubernetes would take the manifests")
    for number, overlay in enumerate(overlays()):
        place = work / f"overlay-{number}"
        place.mkdir()
        (place / "kustomization.yaml").write_text(f"resources: [{os.path.relpath(directory, place)}]\n{overlay}")
        rendered_overlay = work / f"overlay-{number}.yaml"
        rendered_overlay.write_text(run("kubectl", "kustomize", "--load-restrictor", "LoadRestrictionsNone", place))
        run(validate, "--strict", "--quiet", rendered_overlay)
        check(rendered_overlay.read_text() != rendered.read_text(), f"and overlay {number + 1} of docs/deploying.md")
    to_json = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))"
    parsed = lambda file: json.loads(run(ROOT / ".build/python/bin/python", "-c", to_json, file))
    gateway = next(one for one in parsed(rendered) if one["kind"] == "StatefulSet")["spec"]["template"]["spec"]
    backup = parsed(directory / "backup.yaml")[0]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    several = parsed(directory / "deployment.yaml")[0]["spec"]["template"]["spec"]
    for pod in gateway, several, backup:
        check_restricted(pod)
    # Refused because there is no store here, not because of its options.
    command = [argument.replace("/data/", f"{work}/none/") for argument in backup["containers"][0]["args"]]
    done = subprocess.run([ROOT / ".build/release/postern", *command], capture_output=True, text=True, timeout=60)
    check(done.returncode not in (0, 64) and "usage" not in done.stderr.lower(), "the job's command is one of the gateway's")
    # The gateway takes the configuration in them, with the secrets of the example.
    secrets = work / "secrets"
    secrets.mkdir()
    for line in (directory / "secret.example.yaml").read_text().splitlines():
        name, _, value = line.strip().partition(': "')
        if value:
            (secrets / name).write_text(value.rstrip('"'))
    run(ROOT / ".build/release/postern", "check", "--config", directory / "postern.json",
        env={"POSTERN_SECRETS_DIR": str(secrets), "POSTERN_OUTBOX_PATH": str(work / "checked.sqlite")})
    check(True, "and the gateway their configuration")


def main():
    made = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as directory:
        work = pathlib.Path(directory)
        # The user of the image and of the package has to get below it.
        work.chmod(0o755)
        try:
            check_archive(made, work)
            check_manifests(work)
            check_image(made, work)
            check_package(made, work)
        except Failure as failure:
            sys.exit(f"package-check: {failure}")
    print("all checks passed")


main()
