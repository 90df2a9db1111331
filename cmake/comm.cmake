# The inner loops of the transports: Highway for vectors.
find_package(PkgConfig REQUIRED)
pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy)
set(comm_links PkgConfig::hwy)
file(GLOB comm_apart CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/comm/kernels/*.cpp)

# Processes: MPI, where it is installed. Without it, no_mpi.cpp stands in for comm/mpi and refuses comm.backend = mpi by name.
option(ECHELON_MPI "ranks as processes, where MPI is installed" ON)
if(ECHELON_MPI)
  find_package(MPI COMPONENTS C)
endif()
if(ECHELON_MPI AND MPI_C_FOUND)
  list(FILTER sources EXCLUDE REGEX "/comm/launch/no_mpi\\.cpp$")
  list(APPEND comm_links MPI::MPI_C)
  set(comm_definitions OMPI_SKIP_MPICXX=1) # of MPI, only the functions of its standard
else()
  list(FILTER sources EXCLUDE REGEX "/comm/mpi/")
  message(STATUS "MPI is not used (Debian: libopenmpi-dev): all ranks will be threads of one process")
endif()
