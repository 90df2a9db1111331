find_package(nlohmann_json REQUIRED)
set(report_links nlohmann_json::nlohmann_json)
