#include "result_rows.h"

#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iterator>
#include <sstream>
#include <stdexcept>

namespace zen {

namespace {

std::string to_json(const ResultRow& row) {
  std::ostringstream out;
  const auto text = [&](const char* key, const std::string& value) {
    out << '"' << key << "\": \"" << value << "\", ";
  };
  const auto number = [&](const char* key, double value) {
    out << '"' << key << "\": " << std::setprecision(10) << value << ", ";
  };
  text("operation", row.operation);
  text("encoding", row.encoding);
  text("pattern", row.pattern);
  text("dtype", row.dtype);
  number("density", row.density);
  number("threads", row.threads);
  number("seconds", row.seconds);
  number("bytes", row.bytes);
  number("entropy_bytes", row.entropy_bytes);
  number("ratio_to_bandwidth", row.ratio_to_bandwidth);
  text("bandwidth", row.bandwidth);
  std::string json = out.str();
  json.resize(json.size() - 2);  // the last comma
  return "{" + json + "}";
}

// The file's rows without the closing bracket, ready for another row.
std::string opened_list(const std::string& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (text.empty()) return "[\n";
  const size_t last_row = text.rfind('}'), closing = text.rfind(']');
  if (text[0] != '[' || last_row == std::string::npos || closing < last_row)
    throw std::runtime_error(path + " is not a list of result rows: move it away");
  return text.substr(0, last_row + 1) + ",\n";
}

}  // namespace

void append_rows(const std::string& path, const std::vector<ResultRow>& rows) {
  if (rows.empty()) return;
  std::string text = opened_list(path);
  for (size_t row = 0; row < rows.size(); ++row) text += (row ? ",\n" : "") + to_json(rows[row]);
  const auto folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder);
  std::ofstream file(path);
  file << text << "\n]\n";
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

}  // namespace zen
