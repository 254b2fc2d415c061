// One load of the plugin, told as JSON: what `comminsight doctor` runs.
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nccl.h"
#include "ranks.h"

namespace fake {
namespace {

Script probe_script(const Release& release) {
  Script script;
  std::string error;
  parse_script("probe", "ranks 2\nall: all_reduce world count=1024\nall: sync\n", &script, &error);
  script.release = release;
  script.n_ranks = 1;
  script.is_alone = true;
  return script;
}

std::string attempts_of(const Plugin& plugin) {
  std::string out;
  for (const Attempt& attempt : plugin.attempts()) {
    Json json;
    json.text("name", attempt.name).text("path", attempt.path).text("error", attempt.error);
    out += (out.empty() ? "" : ",") + json.str();
  }
  return "[" + out + "]";
}

std::string texts_of(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) out += (out.empty() ? "" : ",") + json_text(text);
  return "[" + out + "]";
}

// Text that the library tells through its own door; other plugins have none.
std::string asked(const Plugin& plugin, const char* function) {
  void* found = plugin.exported(function);
  const char* text = found == nullptr ? "" : reinterpret_cast<const char* (*)()>(found)();
  return text == nullptr ? "" : text;
}

void add_calls(Json* json, Calls& calls) {
  Json started;
  for (int bit = 0; bit < kEventTypes; bit++)
    if (const int64_t n = calls.started[bit]; n > 0) started.number(event_name(bit), n);
  json->raw("started", started.str()).number("states", calls.states).number("stops", calls.stops);
  json->number("unwritten", calls.unwritten).number("nonzero", calls.nonzero);
  json->number("init_errors", calls.init_errors);
}

[[noreturn]] void probe_here(const Release& release) {
  const Script& script = *new Script(probe_script(release));  // never destroyed: threads may run at exit
  Log& log = *new Log;
  const char* value = getenv("NCCL_PROFILER_PLUGIN");
  auto* process = new Process(script, *Arena::create(), log);
  process->ranks.push_back(std::make_unique<Rank>(*process, 0));
  Plugin& plugin = process->plugin;
  const bool is_loaded = plugin.acquire();  // held, so that it can be asked afterwards
  Json json;
  json.text("release", release.name).text("value", value == nullptr ? "" : value);
  json.raw("is_set", value == nullptr ? "false" : "true");
  json.raw("is_disabled", plugin_attempts(release, value).is_disabled ? "true" : "false");
  json.raw("loaded", is_loaded ? "true" : "false").raw("attempts", attempts_of(plugin));
  json.raw("symbols", texts_of(plugin.symbols()));
  if (is_loaded) {
    json.text("path", plugin.attempts().back().path).text("symbol", plugin.symbols().back());
    json.number("version", plugin.version()).text("plugin", plugin.plugin_name());
    process->ranks.front()->play();
    add_calls(&json, plugin.calls());
    json.hex("mask", static_cast<uint32_t>(plugin.mask()));
    for (const auto& [key, function] : {std::pair<const char*, const char*>{"box_path", "ci_box_path"},
                                        {"segment_path", "ci_segment_path"}, {"inert_reason", "ci_inert_reason"}})
      json.text(key, asked(plugin, function));
  }
  puts(json.str().c_str());
  fflush(stdout);
  if (is_loaded) plugin.release();
  exit(is_loaded ? 0 : 3);
}

}  // namespace

int probe(const Release& release) {
  fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) probe_here(release);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return 1;
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  Json json;
  json.text("release", release.name).raw("loaded", "false").number("died_of_signal", WTERMSIG(status));
  puts(json.str().c_str());
  return 1;
}

int list_releases() {
  for (const std::string& name : release_names()) {
    Release release;
    parse_release(name, &release);
    std::vector<std::string> symbols;
    for (int version = release.newest; version >= 1; version--)
      symbols.push_back("ncclProfiler_v" + std::to_string(version));
    Json json;
    json.text("release", name).raw("symbols", texts_of(symbols));
    json.text("kernel_thread", release.has_kernel_thread() ? "profiler" : "proxy");
    json.raw("api_events", release.has_api_events() ? "true" : "false");
    json.raw("clears_task_handle", release.clears_task_handle() ? "true" : "false");
    json.raw("takes_paths", release.is_2_27_3 ? "false" : "true");
    puts(json.str().c_str());
  }
  return 0;
}

}  // namespace fake
