#pragma once
// Pages of `bilevel report`: run folders by hand, what every page must have, and what a browser makes of it.

#include <gmock/gmock.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/cli/image_files.h"
#include "tests/cli/program.h"

namespace bilevel::test {

inline bool has_program(const std::string& name) {
  return std::system(("command -v " + name + " >/dev/null 2>&1").c_str()) == 0;
}

inline size_t count(const std::string& text, const std::string& part) {
  size_t times = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++times;
  return times;
}

// A page with the pictures' bytes cut short: messages of failed tests are for people.
inline std::string read_page(const std::string& path) {
  const std::string page = read_text(path);
  std::string out;
  constexpr std::string_view begin = ";base64,";
  size_t from = 0;
  for (size_t at = page.find(begin); at != std::string::npos; at = page.find(begin, from)) {
    const size_t payload = at + begin.size(), end = page.find_first_of("\" ", payload);
    out += page.substr(from, std::min(payload + 12, end) - from);
    from = end;
  }
  return out + page.substr(from);
}

// Everything that a browser would fetch is in the page itself, and headings come in order.
inline void expect_well_made(const std::string& page) {
  EXPECT_THAT(page, ::testing::AllOf(
                        ::testing::HasSubstr("<!DOCTYPE html>"), ::testing::HasSubstr("<html lang=\"en\">"),
                        ::testing::HasSubstr("<title>"), ::testing::HasSubstr("name=\"viewport\""),
                        ::testing::HasSubstr("prefers-color-scheme:dark"),
                        ::testing::HasSubstr("@media print"), ::testing::HasSubstr("default-src 'none'")));
  EXPECT_EQ(count(page, "http://") + count(page, "https://"), 0U);
  EXPECT_EQ(count(page, "<script"), 0U);
  EXPECT_EQ(count(page, "<link"), 0U);
  EXPECT_EQ(count(page, "<img src=\"data:"), count(page, "<img"));
  EXPECT_EQ(count(page, "alt=\""), count(page, "<img"));
  EXPECT_EQ(count(page, "alt=\"\""), 0U);
  EXPECT_EQ(count(page, "<h1>"), 1U);
  int level = 0;
  const std::regex heading("<h([1-6])");
  for (std::sregex_iterator it(page.begin(), page.end(), heading), end; it != end; ++it) {
    const int next = std::stoi((*it)[1]);
    EXPECT_LE(next, level + 1) << "a heading of level " << next << " after one of level " << level;
    level = next;
  }
  std::set<std::string> ids;
  const std::regex id(" id=\"([^\"]*)\"");
  for (std::sregex_iterator it(page.begin(), page.end(), id), end; it != end; ++it) {
    EXPECT_TRUE(ids.insert((*it)[1]).second) << "two elements are called " << (*it)[1];
  }
}

// A run folder by hand: what is in it is the test's to say.
inline void make_run(const std::string& folder, const std::string& command, const nlohmann::json& config,
                     const nlohmann::json& summary, const std::string& metrics,
                     const std::string& status = "finished", const std::string& message = "",
                     uint64_t seed = 3) {
  const nlohmann::json facts = {
      {"format", 1},
      {"command", command},
      {"status", status},
      {"message", message},
      {"version", "0.1.0"},
      {"started", "2026-01-31T12:00:00"},
      {"ended", "2026-01-31T12:00:09"},
      {"seed", seed},
      {"machine", {{"torch", "1.13"}, {"blas", "a"}, {"cpu", "b"}, {"threads", 2}}}};
  put(folder + "/run.json", facts.dump());
  put(folder + "/config.json", config.dump());
  put(folder + "/summary.json", summary.dump());
  put(folder + "/metrics.jsonl", metrics);
}

// ---- the browser ----

struct Browser {
  int exit_code = -1;
  std::string dom, log;
};

inline Browser browse(const std::string& address, const std::string& options) {
  const TemporaryFolder folder;
  // A profile of its own: two tests at once must not meet in the user's.
  const std::string command =
      "timeout 120 chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --enable-logging=stderr "
      "--allow-file-access-from-files --user-data-dir='" +
      folder / "profile" + "' " + options + " '" + address + "' >'" + folder / "dom" + "' 2>'" +
      folder / "log" + "'";
  const int status = std::system(command.c_str());
  Browser result{.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
                 .dom = read_text(folder / "dom"),
                 .log = read_text(folder / "log")};
  std::error_code ignored;
  std::filesystem::remove_all(folder / "profile", ignored);
  return result;
}

// Beside the test's other outputs, for people to look at.
inline std::string screenshots() {
  const std::filesystem::path program = std::getenv("BILEVEL_PROGRAM");
  const std::filesystem::path folder = program.parent_path() / "tests" / "screenshots";
  std::filesystem::create_directories(folder);
  return folder;
}

// What a browser makes of pages in a window of this width, one run for all of them. A script looks from
// outside, as the pages run none: how wide they are, which pictures cannot be shown, the smallest letters,
// and which view of the curves is seen at first and after a click on "oracle calls".
inline constexpr const char* probe = R"html(
<script>
function look(frame) {
  const page = frame.contentDocument, style = e => frame.contentWindow.getComputedStyle(e);
  const views = () => [...page.querySelectorAll('.view')].filter(v => style(v).display != 'none')
                          .map(v => v.className.split(' ')[1]).join(' ');
  const before = views(), calls = page.getElementById('axis-calls');
  if (calls) calls.click();
  const images = [...page.images];
  return {wide: page.documentElement.scrollWidth, images: images.length,
          broken: images.filter(i => !i.complete || i.naturalWidth == 0).length,
          ids: [...page.querySelectorAll('[id]')].map(e => e.id),
          empty: [...page.querySelectorAll('section')].filter(s => s.offsetHeight < 60).map(s => s.id),
          letters: Math.min(...[...page.querySelectorAll('p,td,th,li,figcaption')]
                                   .map(e => parseFloat(style(e).fontSize))),
          before: before, after: views()};
}
onload = () => {
  const seen = [...document.querySelectorAll('iframe')].map(look);
  document.body.innerHTML = '<pre>' + JSON.stringify(seen) + '</pre>';
};
</script>
)html";

inline nlohmann::json look_at(const TemporaryFolder& folder, const std::vector<std::string>& pages,
                              int width) {
  std::string frames = "<!DOCTYPE html><body>";
  for (const std::string& page : pages) {
    frames += "<iframe src='file://" + page + "' style='border:0;width:" + std::to_string(width) +
              "px;height:800px'></iframe>\n";
  }
  put(folder / "probe.html", frames + probe);
  const Browser seen = browse("file://" + folder / "probe.html", "--dump-dom --virtual-time-budget=20000");
  const size_t begin = seen.dom.find("<pre>"), end = seen.dom.find("</pre>");
  if (begin == std::string::npos || end == std::string::npos) {
    ADD_FAILURE() << "the probe gave no answer: " << seen.dom.substr(0, 400) << seen.log.substr(0, 2000);
    return nlohmann::json::array();
  }
  return nlohmann::json::parse(seen.dom.substr(begin + 5, end - begin - 5));
}

}  // namespace bilevel::test
