#include "text.h"

#include <cstdio>

namespace ci {
namespace {

// Length of the valid UTF-8 character at `p`, 0 if it is none. Overlong forms and surrogates are refused.
size_t character_bytes(const unsigned char* p) {
  if (p[0] < 0x80) return 1;
  const size_t n = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
  if (p[0] < 0xC2 || p[0] > 0xF4) return 0;
  for (size_t i = 1; i < n; i++)
    if ((p[i] & 0xC0) != 0x80) return 0;  // stops at the terminator too
  if (p[0] == 0xE0 && p[1] < 0xA0) return 0;
  if (p[0] == 0xED && p[1] > 0x9F) return 0;
  if (p[0] == 0xF0 && p[1] < 0x90) return 0;
  if (p[0] == 0xF4 && p[1] > 0x8F) return 0;
  return n;
}

}  // namespace

Text& Text::raw(const char* text, size_t bytes) {
  if (size_ + bytes >= capacity_) {
    bytes = capacity_ - 1 - size_;
    full_ = true;
  }
  memcpy(buffer_ + size_, text, bytes);
  size_ += bytes;
  buffer_[size_] = 0;
  return *this;
}

Text& Text::number(int64_t value) {
  char digits[24];
  const int n = snprintf(digits, sizeof digits, "%lld", static_cast<long long>(value));
  return raw(digits, static_cast<size_t>(n));
}

Text& Text::quoted(const char* text, size_t limit_bytes) {
  const auto* p = reinterpret_cast<const unsigned char*>(text);
  const auto* end = p + limit_bytes;
  raw("\"", 1);
  while (*p != 0 && p < end) {
    const size_t n = character_bytes(p);
    if (n > static_cast<size_t>(end - p)) break;
    if (n == 0 || *p < 0x20 || *p == 0x7F) {
      raw("?", 1);
      p++;
      continue;
    }
    if (*p == '"' || *p == '\\') raw("\\", 1);
    raw(reinterpret_cast<const char*>(p), n);
    p += n;
  }
  return raw("\"", 1);
}

void Text::rewind(size_t size) {
  size_ = size;
  buffer_[size_] = 0;
  full_ = false;
}

size_t utf8_prefix_bytes(const char* text, size_t limit_bytes) {
  size_t n = strnlen(text, limit_bytes + 1);
  if (n <= limit_bytes) return n;
  n = limit_bytes;
  while (n > 0 && (static_cast<unsigned char>(text[n]) & 0xC0) == 0x80) n--;
  return n;
}

}  // namespace ci
