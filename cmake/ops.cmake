# The CPU backend: Highway for vectors, threads inside an operation by base/team.h. OpenBLAS is loaded at run time (ops/cpu/blas.h).
find_package(PkgConfig REQUIRED)
pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy)
set(ops_links PkgConfig::hwy ${CMAKE_DL_LIBS})
file(GLOB ops_apart CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/ops/cpu/*.cpp ${CMAKE_SOURCE_DIR}/src/ops/cpu/attention/*.cpp)
