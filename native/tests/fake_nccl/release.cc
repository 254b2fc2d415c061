#include "release.h"

#include <strings.h>

#include <cstring>

namespace fake {
namespace {

struct Row {
  const char* name;
  int minor;
  int newest;
};
constexpr Row kRows[] = {{"2.27.3", 27, 4}, {"2.27", 27, 4}, {"2.28", 28, 5}, {"2.29", 29, 6},
                         {"2.30", 30, 6},   {"2.31", 31, 7}, {"2.32", 32, 7}};
constexpr size_t kNameBytes = 255;  // NCCL cuts the value there
constexpr const char* kDefaultName = "libnccl-profiler.so";

bool is_library_name(const std::string& value) {
  return value.size() >= 6 && value.compare(0, 3, "lib") == 0 && value.compare(value.size() - 3, 3, ".so") == 0;
}

bool means_static(const std::string& value) {
  static const char kWord[] = "STATIC_PLUGIN";
  return !value.empty() && value.size() < sizeof kWord && strncasecmp(value.c_str(), kWord, value.size()) == 0;
}

}  // namespace

bool parse_release(const std::string& text, Release* out) {
  const size_t space = text.find(' ');
  for (const Row& row : kRows) {
    if (text.substr(0, space) != row.name) continue;
    *out = Release{text, row.minor, row.newest, row.newest, strcmp(row.name, "2.27.3") == 0};
    if (space == std::string::npos) return true;
    const std::string shim = text.substr(space + 1);
    if (shim.size() != 7 || shim.compare(0, 6, "shim v") != 0) return false;
    out->at_most = shim[6] - '0';
    return out->at_most >= 4 && out->at_most < row.newest;
  }
  return false;
}

const std::vector<std::string>& release_names() {
  static const auto* names = [] {
    auto* made = new std::vector<std::string>;
    for (const Row& row : kRows) made->push_back(row.name);
    return made;
  }();
  return *names;
}

Attempts plugin_attempts(const Release& release, const char* text) {
  if (text == nullptr || *text == 0) return {false, {kDefaultName}};
  const std::string value(text, strnlen(text, kNameBytes));
  if (means_static(value)) return {false, {""}};
  if (release.minor >= 28 && strcasecmp(value.c_str(), "none") == 0) return {true, {}};
  const std::string derived = "libnccl-profiler-" + value + ".so";
  if (release.is_2_27_3) return {false, {is_library_name(value) ? value : derived}};
  Attempts out{false, {value}};
  if (value.find('/') == std::string::npos && !is_library_name(value)) out.names.push_back(derived);
  return out;
}

}  // namespace fake
