"""Builds the wheel of this package with the standard library alone.

    python3 wheel.py dist

It is also the build backend for pip (PEP 517): pip install ./clients/python. The
same files give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))

METADATA = """\
Metadata-Version: 2.1
Name: croft
Version: {version}
Summary: Leases and fencing for background agents
License: Apache-2.0
Requires-Python: >=3.10
Description-Content-Type: text/markdown

{readme}"""

WHEEL = """\
Wheel-Version: 1.0
Generator: croft
Root-Is-Purelib: true
Tag: py3-none-any
"""


def build_wheel(
    wheel_directory: str, config_settings: object = None, metadata_directory: str | None = None
) -> str:
    """Writes the wheel into a directory, and returns its name."""
    found = re.search(r'^__version__ = "(.+)"$', read("croft/__init__.py").decode(), re.MULTILINE)
    assert found is not None
    version = found.group(1)
    info = f"croft-{version}.dist-info"
    files = {
        f"croft/{name}": read(f"croft/{name}")
        for name in sorted(os.listdir(os.path.join(HERE, "croft"))) if name.endswith((".py", "py.typed"))
    }
    files[f"{info}/METADATA"] = METADATA.format(version=version, readme=read("README.md").decode()).encode()
    files[f"{info}/WHEEL"] = WHEEL.encode()
    files[f"{info}/LICENSE"] = read("../../LICENSE")
    files[f"{info}/RECORD"] = record(files, info).encode()
    name = f"croft-{version}-py3-none-any.whl"
    os.makedirs(wheel_directory, exist_ok=True)
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, content)
    return name


def read(name: str) -> bytes:
    with open(os.path.join(HERE, name), "rb") as f:
        return f.read()


def record(files: dict[str, bytes], info: str) -> str:
    """Lists the files with their digests."""
    lines = []
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(content)}\n")
    return "".join(lines) + f"{info}/RECORD,,\n"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: wheel.py DIRECTORY")
    print(build_wheel(sys.argv[1]))
