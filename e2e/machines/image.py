#!/usr/bin/env python3
"""`image.py NAME PROGRAM ARCHIVE` writes the image of one static program as an archive in the OCI image layout."""

import platform
import shutil
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "image"))
import oci  # noqa: E402

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def main():
    name, program, archive = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    repository, _, tag = name.rpartition(":")
    entry_point = f"usr/local/bin/{program.name}"

    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        root = Path(folder, "root")
        target = root / entry_point
        target.parent.mkdir(parents=True)
        (root / "tmp").mkdir()
        shutil.copyfile(program, target)
        target.chmod(0o755)
        for path in oci.paths_below(root):
            path.chmod(0o755)

        # Level 0 only wraps the bytes: the images are read once, on this machine.
        layout = oci.Layout(Path(folder, "oci"), time=0, gzip_level=0)
        config = {"Entrypoint": [f"/{entry_point}"], "Env": ["PATH=/usr/local/bin"]}
        image = layout.add_image(root, ARCHITECTURES.get(platform.machine(), platform.machine()), config)
        layout.finish([image], repository, tag)
        layout.archive(archive)


main()
