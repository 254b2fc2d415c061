// What was really played, as JSON lines; each is one write, so that a killed process leaves whole lines.
#ifndef FAKE_NCCL_LOG_H
#define FAKE_NCCL_LOG_H
#include <cstdint>
#include <string>

namespace fake {

// A JSON object in the making.
class Json {
 public:
  Json& text(const char* key, const std::string& value);
  Json& number(const char* key, int64_t value);
  Json& raw(const char* key, const std::string& value);
  Json& hex(const char* key, uint64_t value);
  std::string str() const { return "{" + body_ + "}"; }

 private:
  Json& key(const char* name);
  std::string body_;
};

std::string json_text(const std::string& value);

class Log {
 public:
  // False: the file cannot be written.
  bool open(const std::string& path);
  bool is_open() const { return fd_ >= 0; }
  void line(const Json& json);

 private:
  int fd_ = -1;
};

}  // namespace fake
#endif
