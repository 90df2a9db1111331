find_package(nlohmann_json REQUIRED)
set(checkpoint_links nlohmann_json::nlohmann_json)
