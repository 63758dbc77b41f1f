"""Writes an OCI image layout: https://github.com/opencontainers/image-spec/blob/v1.1.0/image-layout.md

The same files give the same digests: paths are sorted, every time is that of the caller, owners are root.
"""

import gzip
import hashlib
import json
import os
import shutil
import tarfile
from datetime import datetime, timezone
from pathlib import Path

TYPE = "application/vnd.oci.image."
# Another level gives other bytes. The image's ID does not depend on it.
GZIP_LEVEL = 6


class Counted:
    """Passes bytes on to a file, and knows their digest and number."""

    def __init__(self, file):
        self.file, self.sha256, self.size = file, hashlib.sha256(), 0

    def write(self, data) -> int:
        self.sha256.update(data)
        self.size += len(data)
        return self.file.write(data)

    def flush(self):
        self.file.flush()

    @property
    def digest(self) -> str:
        return f"sha256:{self.sha256.hexdigest()}"


def paths_below(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).as_posix())


def write_tar(folder: Path, to, time: int):
    """All files of a folder with their modes and links, as files of root."""
    with tarfile.open(fileobj=to, mode="w|", format=tarfile.USTAR_FORMAT) as tar:
        for path in paths_below(folder):
            entry = tar.gettarinfo(path, arcname=path.relative_to(folder).as_posix())
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = time
            # Equal files are hard links in some caches. In an image each is a file.
            if path.is_file() and not path.is_symlink():
                entry.type, entry.linkname, entry.size = tarfile.REGTYPE, "", path.stat().st_size
                with path.open("rb") as content:
                    tar.addfile(entry, content)
            else:
                tar.addfile(entry)


class Layout:
    """A folder that becomes an image layout, with one index of one image for each architecture."""

    def __init__(self, folder: Path, time: int, gzip_level: int = GZIP_LEVEL):
        self.folder, self.time, self.gzip_level = folder, time, gzip_level
        self.created = datetime.fromtimestamp(time, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.blobs = folder / "blobs" / "sha256"
        shutil.rmtree(folder, ignore_errors=True)
        self.blobs.mkdir(parents=True)

    def add_json(self, kind: str, value: dict) -> dict:
        data = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
        digest = hashlib.sha256(data).hexdigest()
        (self.blobs / digest).write_bytes(data)
        return {"mediaType": f"{TYPE}{kind}+json", "digest": f"sha256:{digest}", "size": len(data)}

    def add_layer(self, root: Path) -> tuple[dict, str]:
        """The descriptor of a layer with the files of `root`, and the digest of the layer without its compression."""
        unfinished = self.blobs / "unfinished"
        with unfinished.open("wb") as file:
            compressed = Counted(file)
            options = {"compresslevel": self.gzip_level, "mtime": 0}
            with gzip.GzipFile(filename="", mode="wb", fileobj=compressed, **options) as zipped:
                plain = Counted(zipped)
                write_tar(root, plain, self.time)

        unfinished.rename(self.blobs / compressed.sha256.hexdigest())
        kind = f"{TYPE}layer.v1.tar+gzip"
        return {"mediaType": kind, "digest": compressed.digest, "size": compressed.size}, plain.digest

    def add_image(self, root: Path, architecture: str, config: dict) -> dict:
        layer, plain = self.add_layer(root)
        platform = {"architecture": architecture, "os": "linux"}
        config = platform | {
            "created": self.created,
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [plain]},
            "history": [{"created": self.created, "created_by": "COPY rootfs/ /"}],
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{TYPE}manifest.v1+json",
            "config": self.add_json("config.v1", config),
            "layers": [layer],
        }
        return self.add_json("manifest.v1", manifest) | {"platform": platform}

    def finish(self, images: list[dict], name: str, tag: str) -> str:
        """Writes the index. Returns its digest, which does not depend on the name."""
        index = {"schemaVersion": 2, "mediaType": f"{TYPE}index.v1+json", "manifests": images}
        annotations = {
            "org.opencontainers.image.ref.name": tag,
            # The name that `ctr images import` gives to the image.
            "io.containerd.image.name": f"{name}:{tag}",
        }
        entry = self.add_json("index.v1", index) | {"annotations": annotations}
        root = {"schemaVersion": 2, "mediaType": index["mediaType"], "manifests": [entry]}

        (self.folder / "index.json").write_text(json.dumps(root, sort_keys=True, indent=2) + "\n")
        (self.folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}\n')
        for path in [self.folder, *paths_below(self.folder)]:
            path.chmod(0o755 if path.is_dir() else 0o644)
            os.utime(path, (self.time, self.time))
        return entry["digest"]

    def archive(self, to: Path):
        with to.open("wb") as file:
            write_tar(self.folder, file, self.time)
