"""Linkgauge for Spack. './lg dist DIR' writes it into DIR with the sdist's hash."""

from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyLinkgauge(PythonPackage):
    """Measures every path that data can take between GPUs and host memory, and says how much of what the links allow
    each delivers"""

    pypi = "linkgauge/linkgauge-0.2.0.tar.gz"

    license("Apache-2.0")

    version("0.2.0", sha256="unknown")

    variant("report", default=False, description="Charts of reports; SQL needs pip install duckdb")

    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("ninja", type="build")
    depends_on("python@3.10:", type=("build", "run"))
    depends_on("py-scikit-build-core@0.10:", type="build")
    depends_on("py-nanobind@2.4:", type="build")

    # Ranks are started by the MPI that py-mpi4py was built for, which stands in for pip's package of MPICH.
    depends_on("mpi", type="run")
    depends_on("py-mpi4py@4.1:", type="run")
    depends_on("py-numpy@1.26:", type="run")
    depends_on("py-click@8.2:", type="run")
    depends_on("py-rich@13.7:", type="run")
    depends_on("py-tomli@2.3:", type="run")
    depends_on("py-pyarrow@15:", type="run")
    depends_on("py-scipy@1.11:", type="run")
    depends_on("py-nvidia-ml-py@12.555:", type="run")
    depends_on("py-altair@5.4:", type="run", when="+report")
    depends_on("py-vl-convert-python@1.6:", type="run", when="+report")

    @property
    def import_modules(self):
        return ["linkgauge", "linkgauge._core"]
