#include "log.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

namespace fake {

std::string json_text(const std::string& value) {
  std::string out = "\"";
  for (unsigned char byte : value) {
    char escaped[8];
    const bool is_plain = byte >= 0x20 && byte < 0x7F && byte != '"' && byte != '\\';
    snprintf(escaped, sizeof escaped, is_plain ? "%c" : "\\u%04x", byte);
    out += escaped;
  }
  return out + "\"";
}

Json& Json::key(const char* name) {
  if (!body_.empty()) body_ += ",";
  body_ += json_text(name) + ":";
  return *this;
}
Json& Json::text(const char* name, const std::string& value) {
  key(name).body_ += json_text(value);
  return *this;
}
Json& Json::number(const char* name, int64_t value) {
  key(name).body_ += std::to_string(value);
  return *this;
}
Json& Json::raw(const char* name, const std::string& value) {
  key(name).body_ += value;
  return *this;
}
Json& Json::hex(const char* name, uint64_t value) {
  char text[24];
  snprintf(text, sizeof text, "\"0x%016llx\"", static_cast<unsigned long long>(value));
  return raw(name, text);
}

bool Log::open(const std::string& path) {
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  return fd_ >= 0;
}

void Log::line(const Json& json) {
  if (fd_ < 0) return;
  const std::string text = json.str() + "\n";
  if (write(fd_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) perror("fake_nccl: log");
}

}  // namespace fake
