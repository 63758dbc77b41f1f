"""The texts of the licences of the crates that are linked into the programs, and of the Debian packages of copied files."""

import hashlib
import json
import re
import subprocess
from collections import Counter
from pathlib import Path

FOLDER = "licenses/third-party"
INDEX = f"{FOLDER}/crates.txt"
NAME = re.compile(r"(UN)?LICEN[SC]E|COPYING|COPYRIGHT|NOTICE", re.IGNORECASE)
SOURCES = {".rs", ".c", ".cc", ".h", ".go", ".py", ".pl", ".sh", ".toml", ".json", ".html"}
INTRODUCTION = """\
The licences of the crates that are linked into the programs of this image. Below each crate are the files of its package, and
where their texts are. Equal texts are one file."""
WITHOUT = """\
The packages of the following crates have no text, or are no packages. The texts are those of another crate with the same
licence. In parentheses are the authors that the package names."""
# The library of Rust is no package of a registry. This crate has the same licences and the same authors.
RUST = {"repository": "https://github.com/rust-lang/libc"}


def collect(root: Path, crates: list[dict], target: str) -> dict[str, bytes]:
    """The files of the image, by path: an index of the crates, and each text once."""
    packages = metadata(root, target)
    crates = sorted((crate for crate in crates if not crate["name"].startswith("outrigger-")), key=key)
    package = {key(crate): RUST if crate["name"] == "rust-std" else packages[key(crate)] for crate in crates}
    texts = {crate: texts_of(of) for crate, of in package.items()}
    having = [crate for crate in crates if texts[key(crate)]]
    without = [crate for crate in crates if not texts[key(crate)]]

    files, lines = {}, [INTRODUCTION]
    for crate in having:
        lines.append(heading(crate))
        lines += [f"    {name}: {add(files, text)}" for name, text in texts[key(crate)].items()]
    lines.append(f"\n{WITHOUT}")
    for crate in without:
        authors = ", ".join(re.sub(r" *<[^>]*>", "", author) for author in package[key(crate)].get("authors", []))
        lines.append(heading(crate) + (f" ({authors})" if authors else ""))
        for licence in identifiers(crate):
            candidates = [
                (kinship(package[key(crate)], package[key(other)]), other, text_of(licence, other, texts[key(other)]))
                for other in having
            ]
            other, text = most_common(licence, candidates)
            lines.append(f"    {licence}: {add(files, text)}, of {other['name']} {other['version']}")
    return {INDEX: ("\n".join(lines) + "\n").encode()} | files


def debian_copyrights(components: list[dict]) -> dict[str, bytes]:
    """The file `copyright` of each Debian package, which describes its licences."""
    files = {}
    for component in components:
        file = Path("/usr/share/doc") / component["name"] / "copyright"
        if component.get("purl", "").startswith("pkg:deb/") and file.is_file():
            files[f"{FOLDER}/debian/{component['name']}.txt"] = file.read_bytes()
    return files


def musl_copyright(given: Path) -> dict[str, bytes]:
    """The copyright notices of musl and of the code in it."""
    if not given.is_file():
        raise SystemExit(
            f"image/build: {given} is absent: install the package musl of Debian or Ubuntu, or name the file COPYRIGHT of "
            "musl's sources with --musl-copyright"
        )
    return {f"{FOLDER}/musl.txt": given.read_bytes()}


def metadata(root: Path, target: str) -> dict[tuple[str, str], dict]:
    command = ["cargo", "metadata", "--locked", "--format-version=1", f"--filter-platform={target}"]
    printed = subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE).stdout
    return {key(package): package for package in json.loads(printed)["packages"]}


def key(crate: dict) -> tuple[str, str]:
    return crate["name"], crate["version"]


def expression(crate: dict) -> str:
    return crate["licenses"][0]["expression"] if "licenses" in crate else ""


def heading(crate: dict) -> str:
    return f"\n{crate['name']} {crate['version']}: {expression(crate)}"


def identifiers(crate: dict) -> list[str]:
    return [word for word in re.findall(r"[\w.+-]+", expression(crate)) if word not in ("AND", "OR", "WITH")]


def texts_of(package: dict) -> dict[str, bytes]:
    """The files with licences of a crate's package, by their path in it."""
    if "manifest_path" not in package:
        return {}
    folder = Path(package["manifest_path"]).parent
    named = folder / package["license_file"] if package.get("license_file") else None
    found = {}
    for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).as_posix()):
        is_licence = NAME.match(path.name) and path.suffix.lower() not in SOURCES
        if (is_licence or path == named) and path.is_file():
            found[path.relative_to(folder).as_posix()] = path.read_bytes()
    return found


def add(files: dict[str, bytes], content: bytes) -> str:
    """Adds a text, unless it is there. Returns its path beside the index."""
    path = f"texts/{hashlib.sha256(content).hexdigest()[:16]}.txt"
    files[f"{FOLDER}/{path}"] = content
    return path


def kinship(package: dict, other: dict) -> int:
    """2 for packages of one repository, 1 for those of one owner, who usually has the same licences."""
    mine, others = ((each.get("repository") or "").rstrip("/") for each in (package, other))
    return (mine == others) + (mine.rpartition("/")[0] == others.rpartition("/")[0]) if mine else 0


def text_of(licence: str, crate: dict, texts: dict[str, bytes]) -> bytes | None:
    """The text of this licence in a crate's package: its only one, or by the usual name of the file."""
    if expression(crate) == licence and len(texts) == 1:
        return next(iter(texts.values()))
    return texts.get(f"LICENSE-{licence.split('-')[0].upper()}")


def most_common(licence: str, candidates: list[tuple[int, dict, bytes | None]]) -> tuple[dict, bytes]:
    """The text that most of the closest crates have."""
    candidates = [candidate for candidate in candidates if candidate[2]]
    if not candidates:
        raise SystemExit(f"image/build: no crate has a text of the licence {licence}: add one to image/licences.py")
    closest = max(near for near, _, _ in candidates)
    nearest = [(crate, text) for near, crate, text in candidates if near == closest]
    counts = Counter(text for _, text in nearest)
    most = max(counts, key=lambda text: (counts[text], text))
    return next((crate, text) for crate, text in nearest if text == most)
