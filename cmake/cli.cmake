find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
set(cli_links CLI11::CLI11 nlohmann_json::nlohmann_json)
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/cli/cli.cpp PROPERTIES COMPILE_DEFINITIONS ECHELON_VERSION="${PROJECT_VERSION}")
