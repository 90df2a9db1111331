# The CPU backend: Highway for vectors, OpenMP for threads inside an operation. OpenBLAS is loaded at run time (ops/cpu/blas.h).
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(PkgConfig REQUIRED)
pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy)
set(ops_links OpenMP::OpenMP_CXX PkgConfig::hwy ${CMAKE_DL_LIBS})
