#include "report/browser.h"

#include "base/error.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <fstream>

namespace echelon {
namespace {

using Json = nlohmann::json;

constexpr int patience_milliseconds = 30'000;

std::string from_base64(const std::string& text) {
  constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  unsigned group = 0;
  int num_bits = 0;
  for (const char letter : text) {
    const std::size_t value = letters.find(letter);
    if (value == std::string_view::npos) continue;
    group = group << 6 | static_cast<unsigned>(value);
    num_bits += 6;
    if (num_bits >= 8) bytes += static_cast<char>(group >> (num_bits -= 8) & 0xff);
  }
  return bytes;
}

}  // namespace

std::optional<std::string> Browser::program() {
  for (const char* path :
       {"/usr/bin/chromium-headless-shell", "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"})
    if (access(path, X_OK) == 0) return path;
  return std::nullopt;
}

Browser::Browser(const std::string& program, const std::filesystem::path& folder) {
  std::signal(SIGPIPE, SIG_IGN);  // a browser that has exited is an error, not the end of the tests
  std::array<int, 2> to{}, from{};
  if (pipe2(to.data(), O_CLOEXEC) != 0 || pipe2(from.data(), O_CLOEXEC) != 0) throw Failure("no pipes for the browser");
  // Its sandbox needs rights that a container or a chroot often lacks. It shows only our own pages, and no host name
  // resolves.
  std::vector<std::string> words = {program,
                                    "--headless=new",
                                    "--no-sandbox",
                                    "--disable-gpu",
                                    "--disable-dev-shm-usage",
                                    "--hide-scrollbars",
                                    "--no-first-run",
                                    "--disable-extensions",
                                    "--disable-background-networking",
                                    "--disable-component-update",
                                    "--host-resolver-rules=MAP * ~NOTFOUND",
                                    "--user-data-dir=" + folder.string(),
                                    "--remote-debugging-pipe",
                                    "about:blank"};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  // The browser reads commands from 3 and answers on 4. Uses much higher descriptors in between, since our own ends may
  // be 3 or 4.
  for (const auto& [end, high] : {std::pair{to[0], 103}, {from[1], 104}})
    posix_spawn_file_actions_adddup2(&actions, end, high);
  for (const auto& [high, low] : {std::pair{103, 3}, {104, 4}}) posix_spawn_file_actions_adddup2(&actions, high, low);
  for (const int high : {103, 104}) posix_spawn_file_actions_addclose(&actions, high);
  for (const int output : {STDOUT_FILENO, STDERR_FILENO})
    posix_spawn_file_actions_addopen(&actions, output, "/dev/null", O_WRONLY, 0);
  const int error = posix_spawn(&process_, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(to[0]);
  close(from[1]);
  commands_ = to[1], answers_ = from[0];
  if (error != 0) throw Failure(program + " cannot be started");
  const Json target = send("Target.createTarget", {{"url", "about:blank"}}, "");
  session_ = send("Target.attachToTarget", {{"targetId", target.at("targetId")}, {"flatten", true}}, "")
                 .at("sessionId")
                 .get<std::string>();
  for (const char* domain : {"Page", "Runtime", "Log", "Network"})
    call(std::string(domain) + ".enable", Json::object());
}

Browser::~Browser() {
  close(commands_);  // without its pipe the browser ends
  close(answers_);
  for (int tries = 0; tries < 100 && waitpid(process_, nullptr, WNOHANG) == 0; ++tries) usleep(50'000);
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
}

void Browser::open(const std::filesystem::path& file, const Screen& screen) {
  call("Emulation.setDeviceMetricsOverride",
       {{"width", screen.width}, {"height", screen.height}, {"deviceScaleFactor", 1}, {"mobile", screen.is_phone}});
  call("Emulation.setTouchEmulationEnabled", {{"enabled", screen.is_phone}});
  const Json scheme = {{"name", "prefers-color-scheme"}, {"value", screen.is_dark ? "dark" : "light"}};
  call("Emulation.setEmulatedMedia", {{"features", Json::array({scheme})}});
  complaints_.clear();
  is_loaded_ = false;
  page_ = "file://" + file.string();
  call("Page.navigate", {{"url", page_}});
  while (!is_loaded_) take(receive());
}

Json Browser::evaluate(const std::string& expression) {
  const Json answer =
      call("Runtime.evaluate", {{"expression", expression}, {"returnByValue", true}, {"awaitPromise", true}});
  if (answer.contains("exceptionDetails")) throw Failure(expression + ": " + answer["exceptionDetails"].dump());
  return answer.at("result").value("value", Json());
}

void Browser::photograph(const std::filesystem::path& file) {
  const Json answer = call("Page.captureScreenshot", {{"captureBeyondViewport", true}});
  std::ofstream(file, std::ios::binary) << from_base64(answer.at("data").get<std::string>());
}

Json Browser::call(const std::string& method, const Json& parameters) { return send(method, parameters, session_); }

Json Browser::send(const std::string& method, const Json& parameters, const std::string& session) {
  Json message = {{"id", ++num_sent_}, {"method", method}, {"params", parameters}};
  if (!session.empty()) message["sessionId"] = session;
  const std::string text = message.dump() + '\0';
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t count = write(commands_, text.data() + at, text.size() - at);
    if (count <= 0) throw Failure("the browser is gone");
    at += static_cast<std::size_t>(count);
  }
  while (true) {
    const Json answer = receive();
    if (answer.value("id", 0) != num_sent_) {
      take(answer);
      continue;
    }
    if (answer.contains("error")) throw Failure(method + ": " + answer["error"].dump());
    return answer.at("result");
  }
}

Json Browser::receive() {
  std::array<char, 65536> buffer{};
  for (std::size_t end = 0; (end = received_.find('\0')) == std::string::npos;) {
    pollfd file = {answers_, POLLIN, 0};
    if (poll(&file, 1, patience_milliseconds) <= 0) throw Failure("the browser does not answer");
    const ssize_t count = read(answers_, buffer.data(), buffer.size());
    if (count <= 0) throw Failure("the browser has ended");
    received_.append(buffer.data(), static_cast<std::size_t>(count));
  }
  const std::size_t end = received_.find('\0');
  Json message = Json::parse(received_.substr(0, end));
  received_.erase(0, end + 1);
  return message;
}

void Browser::take(const Json& event) {
  const std::string method = event.value("method", "");
  const Json& parameters = event.contains("params") ? event["params"] : event;
  if (method == "Page.loadEventFired") is_loaded_ = true;
  if (method == "Runtime.exceptionThrown" || method == "Log.entryAdded") complaints_.push_back(parameters.dump());
  if (method == "Runtime.consoleAPICalled" && (parameters["type"] == "error" || parameters["type"] == "warning"))
    complaints_.push_back(parameters.dump());
  if (method == "Network.requestWillBeSent") {
    const std::string url = parameters["request"]["url"];
    if (url != page_ && !url.starts_with("data:")) complaints_.push_back("asked the network for " + url);
  }
}

}  // namespace echelon
