find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
set(cli_links CLI11::CLI11 nlohmann_json::nlohmann_json)
set(cli_definitions ECHELON_VERSION="${PROJECT_VERSION}")
