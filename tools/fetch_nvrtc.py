#!/usr/bin/env python3
"""Puts NVIDIA's run-time compiler into the user's cache and prints the path of its library.

Tests compile the CUDA kernels with it where there is no CUDA toolkit, and no GPU. It comes out of the Python package
nvidia-cuda-nvrtc, under NVIDIA's terms; the checksums of its two libraries are pinned here. Linux only.
"""

import os
import platform
import sys
import tempfile
import zipfile

from fetch_model import cache_folder, download, sha256

VERSION = "13.0.88"
LIBRARIES = {
    # machine: {library, and its sha256}
    "x86_64": {
        "libnvrtc.so.13": "a49e67e8e74590f1e98de55c39c6287efd3f59e3c3797464d7bbe0fe01349b11",
        "libnvrtc-builtins.so.13.0": "91dcd944d01da9c0f08fff5d779db136a47f6d62bdb63bae900d2f481e92c3a2",
    },
    "aarch64": {
        "libnvrtc.so.13": "64db9c3fc128f4a57a22c314fda08831a8e3a725d439a70076a0fb98f7bea1b7",
        "libnvrtc-builtins.so.13.0": "84f1c5031bfe1146375b367b2c7fb8d31ea00430be7172177eeb5d04ab813b69",
    },
}


def fetch():
    machine = platform.machine()
    if sys.platform != "linux" or machine not in LIBRARIES:
        raise SystemExit(f"error: NVIDIA's compiler is fetched for Linux on {' and '.join(LIBRARIES)}, and this is {sys.platform} on {machine}")
    target = os.path.join(cache_folder(), f"nvrtc-{VERSION}")
    library = os.path.join(target, "libnvrtc.so.13")
    if os.path.exists(library):
        return library  # the folder is only ever renamed into place after its checksums held
    os.makedirs(cache_folder(), exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder()) as scratch:
        wheel = download(f"nvidia-cuda-nvrtc=={VERSION}", os.path.join(scratch, "wheel"))
        folder = os.path.join(scratch, "nvrtc")
        os.mkdir(folder)
        with zipfile.ZipFile(wheel) as archive:
            for name, wanted in LIBRARIES[machine].items():
                members = [m for m in archive.namelist() if os.path.basename(m) == name]
                if len(members) != 1:
                    raise SystemExit(f"error: {os.path.basename(wheel)} should hold one {name}, found {members}")
                path = os.path.join(folder, name)
                with archive.open(members[0]) as source, open(path, "wb") as out:
                    while block := source.read(1 << 20):
                        out.write(block)
                found = sha256(path)
                if found != wanted:
                    raise SystemExit(f"error: {name} should have sha256 {wanted}, but what was downloaded has {found}")
        os.chmod(folder, 0o755)
        os.rename(folder, target)
    return library


if __name__ == "__main__":
    if len(sys.argv) != 1:
        raise SystemExit("usage: fetch_nvrtc.py")
    print(fetch())
