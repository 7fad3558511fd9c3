"""What Inductor would use on this machine: its C++ compiler and its cache folder."""

from __future__ import annotations

import subprocess
from pathlib import Path

from torch._inductor import cpp_builder
from torch._inductor.exc import InvalidCxxCompiler
from torch._inductor.runtime.cache_dir_utils import default_cache_dir

from torch_piecewise.errors import CompilerMissing


def compiler() -> tuple[str, str]:
    """The command and the first line of its version; raises CompilerMissing."""
    try:
        command = cpp_builder.get_cpp_compiler()
        said = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    except (InvalidCxxCompiler, OSError, subprocess.CalledProcessError) as error:
        raise CompilerMissing.of("what CXX and Inductor's option 'cpp.cxx' name", error) from error
    return command, said.stdout.strip().splitlines()[0]


def cache_folder(chosen: str | None) -> Path:
    """Where compiled code is kept: TORCHINDUCTOR_CACHE_DIR (`chosen`), else Inductor's default."""
    return Path(chosen or default_cache_dir())
