# Most of the time of a compiler goes into headers. With this, it is given all files of some folders at once: two thirds less to compile from scratch, but a
# file that changes costs its folder. It is what every script builds, so that what is tested is what users get.
option(ECHELON_UNITY "compile the files of folders marked TOGETHER at once" ON)

# compiled_at_once(TARGET): its files have no names in common.
function(compiled_at_once target)
  if(ECHELON_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>) # a file among others is a header to GCC, whose types may not hold a file's own
  endif()
endfunction()

# echelon_folder(NAME USES folders... LINKS targets...): the static library echelon_NAME out of every .cpp below src/NAME.
# TOGETHER: its files have no names in common, so that they can be compiled as one. Kernels that Highway compiles once for
#           each instruction set stay apart.
# COLD: runs once, or waits for files and people: -O1, which takes a quarter less to compile.
function(echelon_folder name)
  cmake_parse_arguments(FOLDER "TOGETHER;COLD" "" "USES;LINKS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
  if(EXISTS ${CMAKE_SOURCE_DIR}/cmake/${name}.cmake)
    include(${CMAKE_SOURCE_DIR}/cmake/${name}.cmake) # chooses backends: may edit `sources`, set `${name}_links`, `${name}_definitions` and `${name}_apart`, files that are compiled alone
  endif()
  list(TRANSFORM FOLDER_USES PREPEND echelon_)
  if(sources)
    add_library(echelon_${name} STATIC ${sources})
    target_include_directories(echelon_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
    target_compile_definitions(echelon_${name} PRIVATE ${${name}_definitions})
    if(FOLDER_TOGETHER)
      compiled_at_once(echelon_${name})
      set_source_files_properties(${${name}_apart} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
    if(FOLDER_COLD)
      target_compile_options(echelon_${name} PRIVATE $<$<CONFIG:Release>:-O1>)
    endif()
    target_link_libraries(echelon_${name} PUBLIC ${FOLDER_USES} ${FOLDER_LINKS} ${${name}_links} PRIVATE echelon_flags)
  else()
    add_library(echelon_${name} INTERFACE)
    target_include_directories(echelon_${name} INTERFACE ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(echelon_${name} INTERFACE ${FOLDER_USES} ${FOLDER_LINKS})
  endif()
endfunction()
