# nlohmann-json reads and writes the texts of Hugging Face folders and of manifests, xxHash digests blocks of state.
find_package(PkgConfig REQUIRED)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
find_package(nlohmann_json REQUIRED)
set(checkpoint_links PkgConfig::xxhash nlohmann_json::nlohmann_json)
set(checkpoint_definitions ECHELON_VERSION="${PROJECT_VERSION}")
