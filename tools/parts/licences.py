"""The licences of what a wheel contains besides troupe: libraries copied into it, linked statically, or compiled in as headers.

They are taken from the distribution's packages (/usr/share/doc/PACKAGE/copyright), or from the files beside a Python
distribution or a CUDA toolkit.
"""
import os
import pathlib
import re
import subprocess

COMMON = pathlib.Path("/usr/share/common-licenses")


class NoLicence(Exception):
    """No licence is found for something that the wheel contains. The text says of what, and what to do."""


def owner_of(file):
    """Returns the distribution's package that a file belongs to, e.g. "libssl-dev", or None."""
    real = os.path.realpath(file)
    names = {str(file), real, real.removeprefix("/usr"), f"/usr{real}"}  # dpkg knows a file by the path in its package
    try:
        found = subprocess.run(["dpkg", "-S", *sorted(names)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               check=False).stdout
    except FileNotFoundError:
        return None
    packages = [line.split(": ", 1)[0] for line in found.splitlines() if not line.startswith("diversion ")]
    return packages[0].split(",")[0].split(":")[0] if packages else None


def described(package):
    """Returns name and version of a package and of its source, which tell a reader where its source is to be had."""
    told = subprocess.run(["dpkg-query", "-W", "-f", "${Version}\n${source:Package} ${source:Version}\n${db:Status-Status}\n\n",
                           package], stdout=subprocess.PIPE, text=True, check=True).stdout
    version, source = told.splitlines()[:2]
    return f"{package} {version}, source package {source}"


def beside(file):
    """Returns the licence of a file that no package of the distribution owns, and what it is of; or None."""
    file = pathlib.Path(os.path.realpath(file))
    for folder in file.parents:
        if folder.name in ("site-packages", "dist-packages"):
            name = file.relative_to(folder).parts[0]
            found = sorted(folder.glob(f"{name}-*.dist-info/**/LICEN[SC]E*"))
            return (found[0], folder.joinpath(found[0].relative_to(folder).parts[0]).stem) if found else None
        texts = [folder / "EULA.txt", *sorted(folder.glob("dist-info/nvidia_cuda_runtime-*.dist-info/**/License.txt"))]
        for text in texts:
            if file.name.startswith("libcudart") and text.is_file():
                return text, "cuda-runtime"
    return None


def licences_of(parts, named=None):
    """Returns {path: text} of the licences of parts, a dictionary {what: file}, and of an index, THIRD_PARTY.txt.

    named: {what: licence file}, for parts whose licence is not found otherwise.
    Errors: NoLicence.
    """
    named = named or {}
    texts, index, missing = {}, [], []
    for what, file in sorted(parts.items()):
        package = None if what in named else owner_of(file)
        if what in named:
            source, place = named[what], what
        elif package and pathlib.Path(f"/usr/share/doc/{package}/copyright").is_file():
            source, place = pathlib.Path(f"/usr/share/doc/{package}/copyright"), package
        elif found := beside(file):
            source, place = found
        else:
            missing.append(f"{what} ({file})")
            continue
        texts[f"{place}.txt"] = text = source.read_text(encoding="utf-8", errors="replace")
        index.append(f"{what}\n    from {described(place) if package == place else place}\n    licence: {place}.txt\n")
        for common in re.findall(rf"{COMMON}/([\w.+-]*\w)", text):
            if (COMMON / common).is_file():
                texts[f"common-licenses/{common}"] = (COMMON / common).read_text(encoding="utf-8", errors="replace")
    if missing:
        raise NoLicence(f"no licence was found for {', '.join(missing)}: name each one's file with --licence NAME=FILE")
    texts["THIRD_PARTY.txt"] = ("This wheel contains troupe (Apache-2.0) and, besides it, the following. Texts that are referred to\n"
                                f"as {COMMON}/NAME are in common-licenses/NAME.\n\n" + "\n".join(index))
    return texts
