// fake_nccl: loads the profiler plugin as an NCCL release does and plays a script (LANGUAGE.md).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"

namespace {

constexpr int kUsage = 2;

int usage() {
  fputs("fake_nccl SCRIPT [--plugin VALUE] [--log FILE] [--release \"R [shim vN]\"] [--quiet]\n"
        "fake_nccl --probe [--release R] [--plugin VALUE]\n"
        "fake_nccl --list-releases\n",
        stderr);
  return kUsage;
}

struct Arguments {
  const char* script = nullptr;
  const char* plugin = nullptr;
  const char* log = nullptr;
  const char* release = nullptr;
  bool is_probe = false, is_list = false, is_quiet = false;
};

bool parse(int argc, char** argv, Arguments* out) {
  for (int i = 1; i < argc; i++) {
    const char** value = nullptr;
    if (strcmp(argv[i], "--plugin") == 0) value = &out->plugin;
    if (strcmp(argv[i], "--log") == 0) value = &out->log;
    if (strcmp(argv[i], "--release") == 0) value = &out->release;
    if (value != nullptr) {
      if (++i == argc) return false;
      *value = argv[i];
    } else if (strcmp(argv[i], "--probe") == 0) {
      out->is_probe = true;
    } else if (strcmp(argv[i], "--list-releases") == 0) {
      out->is_list = true;
    } else if (strcmp(argv[i], "--quiet") == 0) {
      out->is_quiet = true;
    } else if (argv[i][0] == '-' || out->script != nullptr) {
      return false;
    } else {
      out->script = argv[i];
    }
  }
  return out->is_probe + out->is_list + (out->script != nullptr) == 1;
}

bool read_file(const char* path, std::string* out) {
  FILE* file = fopen(path, "rb");
  if (file == nullptr) return false;
  char part[4096];
  for (size_t n; (n = fread(part, 1, sizeof part, file)) > 0;) out->append(part, n);
  return fclose(file) == 0;
}

int play(const Arguments& arguments) {
  auto& script = *new fake::Script;  // never destroyed: threads may still read them at exit
  auto& log = *new fake::Log;
  std::string text, error;
  if (!read_file(arguments.script, &text)) {
    perror(arguments.script);
    return kUsage;
  }
  if (!fake::parse_script(arguments.script, text, &script, &error)) {
    fprintf(stderr, "%s\n", error.c_str());
    return kUsage;
  }
  if (arguments.release != nullptr && !fake::parse_release(arguments.release, &script.release)) {
    fprintf(stderr, "there is no release '%s': --list-releases\n", arguments.release);
    return kUsage;
  }
  if (arguments.plugin == nullptr && script.is_plugin_unset) unsetenv("NCCL_PROFILER_PLUGIN");
  if (arguments.plugin == nullptr && script.has_plugin && !script.is_plugin_unset)
    setenv("NCCL_PROFILER_PLUGIN", script.plugin.c_str(), 1);
  if (arguments.log != nullptr && !log.open(arguments.log)) {
    perror(arguments.log);
    return kUsage;
  }
  return fake::play_script(script, log, arguments.is_quiet);
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  if (!parse(argc, argv, &arguments)) return usage();
  if (arguments.is_list) return fake::list_releases();
  if (arguments.plugin != nullptr) setenv("NCCL_PROFILER_PLUGIN", arguments.plugin, 1);
  if (!arguments.is_probe) return play(arguments);
  fake::Release release;
  if (arguments.release != nullptr && !fake::parse_release(arguments.release, &release)) {
    fprintf(stderr, "there is no release '%s': --list-releases\n", arguments.release);
    return kUsage;
  }
  return fake::probe(release);
}
