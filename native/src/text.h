// Text in a buffer of fixed size: JSON pieces and paths without allocation. What does not fit is cut
// and `full()` says so; the text is always terminated.
#ifndef COMMINSIGHT_TEXT_H
#define COMMINSIGHT_TEXT_H
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ci {

class Text {
 public:
  Text(char* buffer, size_t capacity) : buffer_(buffer), capacity_(capacity) { buffer_[0] = 0; }
  Text& raw(const char* text) { return raw(text, strlen(text)); }
  Text& raw(const char* text, size_t bytes);
  Text& number(int64_t value);
  // A JSON string with quotes; control bytes and invalid UTF-8 become '?', longer values are cut at `limit_bytes`.
  Text& quoted(const char* text, size_t limit_bytes = 512);
  size_t size() const { return size_; }
  bool full() const { return full_; }
  const char* c_str() const { return buffer_; }
  // Back to an earlier size: an entry that did not fit leaves no trace.
  void rewind(size_t size);

 private:
  char* buffer_;
  size_t capacity_;
  size_t size_ = 0;
  bool full_ = false;
};

// Bytes of the longest prefix of `text` that is at most `limit_bytes` long and ends between characters.
size_t utf8_prefix_bytes(const char* text, size_t limit_bytes);

// Copies a prefix of `from` (may be null) into a zeroed field, leaving at least one zero byte.
template <size_t N>
void copy_field(char (&field)[N], const char* from) {
  memset(field, 0, N);
  if (from != nullptr) memcpy(field, from, utf8_prefix_bytes(from, N - 1));
}

}  // namespace ci
#endif
