"""Build the optional C core of the shared memory; everything else about the package stands in pyproject.toml.

Rule 1: no compiler, no harm: the build succeeds, the wheel says that it is pure Python, and the fallbacks run.
Rule 2: INTERLOCK_REQUIRE_NATIVE=1 makes a failed build fatal, for those who publish wheels.
Rule 3: one wheel for 3.11 and later (limited API); free-threaded interpreters have no such API before 3.15.
Rule 4: no binary of an earlier build gets into a later one.
"""

import os
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

NATIVE = Path("src/interlock/shm/native")
REQUIRED = os.environ.get("INTERLOCK_REQUIRE_NATIVE") == "1"
LIMITED = not sysconfig.get_config_var("Py_GIL_DISABLED")

CORE = Extension(
    "interlock.shm._core",
    sources=sorted(str(path) for path in NATIVE.glob("*.c")),
    depends=sorted(str(path) for path in NATIVE.glob("*.h")),  # named, or they are left out of the sdist
    define_macros=[("Py_LIMITED_API", "0x030b0000")] if LIMITED else [],
    extra_compile_args=["-std=c11", "-O2", "-g0", "-fvisibility=hidden", "-Wall", "-Wextra"],
    py_limited_api=LIMITED,
    optional=not REQUIRED,
)


class BuildCore(build_ext):
    """Builds the core; when that fails and may fail, forgets that there was one."""

    def run(self) -> None:
        """Removes what an earlier build left, builds, and looks at what came out."""
        place = Path(self.get_ext_fullpath(CORE.name)).parent
        for stale in (*place.glob("_core.*.so"), *place.glob("_core.so")):
            stale.unlink()
        super().run()
        if not Path(self.get_ext_fullpath(CORE.name)).exists():
            self.announce("interlock: no C core (see above); the fallbacks of interlock.shm will be used", level=3)
            self.extensions = []
            self.distribution.ext_modules = []


class TaggedWheel(bdist_wheel):
    """A wheel whose name tells whether the core is in it."""

    def run_command(self, command: str) -> None:
        """Looks, after the build, at what was built: installers keep a hollow binary wheel for years."""
        super().run_command(command)
        if command == "build" and not self.distribution.ext_modules:
            self.root_is_pure = True
            self.py_limited_api = False


setup(
    ext_modules=[CORE],
    cmdclass={"build_ext": BuildCore, "bdist_wheel": TaggedWheel},
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if LIMITED else {},
)
