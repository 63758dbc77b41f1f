"""The bill of materials of the image, in CycloneDX: https://cyclonedx.org/docs/1.5/json/"""

import hashlib
import re
import subprocess
import tomllib
import uuid
from pathlib import Path

# `1aws-config v1.8.0 (...)|Apache-2.0 (*)`: depth, name, version, licence. The star says that its dependencies are above.
LINE = re.compile(r"^(\d+)([A-Za-z][\w-]*) v([^\s|]+)[^|\n]*\|(.*?)(?: \(\*\))?$", re.MULTILINE)


def crates(root: Path, packages: list[str], target: str) -> tuple[list[dict], dict]:
    """The crates that are linked into the programs, and the dependencies of each by its purl."""
    command = ["cargo", "tree", "--locked", "--edges=normal,no-proc-macro", f"--target={target}"]
    command += ["--prefix=depth", "--format={p}|{l}", *(f"--package={package}" for package in packages)]
    listed = subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE, text=True).stdout

    lock = tomllib.loads((root / "Cargo.lock").read_text())["package"]
    checksums = {(package["name"], package["version"]): package.get("checksum") for package in lock}
    found, edges, path = {}, {}, []
    for depth, name, version, licence in LINE.findall(listed):
        purl = f"pkg:cargo/{name}@{version}"
        path[int(depth) :] = [purl]
        if len(path) > 1:
            edges.setdefault(path[-2], set()).add(purl)
        found[purl] = component(name, version, purl, licence, checksums[name, version])
    if not found:
        raise SystemExit(f"image/build: cargo tree printed no crate:\n{listed}")

    rust = tomllib.loads((root / "rust-toolchain.toml").read_text())["toolchain"]["channel"]
    std = component("rust-std", rust, f"pkg:generic/rust-std@{rust}", "MIT OR Apache-2.0")
    return [*found.values(), std], edges


def component(name: str, version: str, purl: str, licence: str = "", sha256: str | None = None) -> dict:
    entry = {"type": "library", "name": name, "version": version, "bom-ref": purl}
    # The project's own crates are in no registry.
    if not name.startswith("outrigger-"):
        entry["purl"] = purl
    if sha256:
        entry["hashes"] = [{"alg": "SHA-256", "content": sha256}]
    if licence:
        # Old manifests separate alternatives with a slash.
        entry["licenses"] = [{"expression": re.sub(r"\s*/\s*", " OR ", licence)}]
    return entry


def debian_package(file: Path) -> dict | None:
    """The Debian package that a file of this machine belongs to."""
    # With a merged /usr the package database knows the file under one of two paths.
    names = {str(file), str(file.resolve()), str(file.resolve()).removeprefix("/usr")}
    try:
        owners = subprocess.run(["dpkg-query", "-S", *sorted(names)], capture_output=True, text=True).stdout
        owner = owners.split(": ")[0]
        if not owner:
            return None
        shown = ["dpkg-query", "-W", "-f", "${Package} ${Version}", owner]
        name, version = subprocess.run(shown, check=True, capture_output=True, text=True).stdout.split()
    except FileNotFoundError:
        return None
    return component(name, version, f"pkg:deb/debian/{name}@{version}")


def files(root: Path, originals: dict[str, Path]) -> list[dict]:
    """Files of this machine in the root filesystem, by their path there, and the packages that they are from."""
    found = []
    for path, original in originals.items():
        digest = hashlib.sha256((root / path.lstrip("/")).read_bytes()).hexdigest()
        hashes = [{"alg": "SHA-256", "content": digest}]
        found.append({"type": "file", "name": path, "bom-ref": f"file:{path}", "hashes": hashes})
        package = debian_package(original)
        if package and package not in found:
            found.append(package)
    return found


def musl(library: Path) -> dict:
    """The C library of a Rust target, which is linked into static programs."""
    versions = set(re.findall(rb"\0(\d+\.\d+\.\d+)\0", library.read_bytes()))
    if len(versions) != 1:
        raise SystemExit(f"image/build: --musl: {library} does not name one version of musl: {sorted(versions)}")
    version = versions.pop().decode()
    return component("musl", version, f"pkg:generic/musl@{version}", "MIT")


def bill(version: str, created: str, components: list[dict], edges: dict) -> dict:
    components = sorted(components, key=lambda component: component["bom-ref"])
    graph = [{"ref": purl, "dependsOn": sorted(needed)} for purl, needed in sorted(edges.items())]
    image = {"type": "container", "name": "outrigger", "version": version, "bom-ref": "outrigger"}
    # Not random, so that the same image has the same number.
    serial = uuid.uuid5(uuid.NAMESPACE_URL, repr((components, graph, created)))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"timestamp": created, "component": image},
        "components": components,
        "dependencies": graph,
    }
