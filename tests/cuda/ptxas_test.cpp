// What nvcc recorded when it compiled the kernels for GPUs: no kernel keeps registers in memory.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <regex>
#include <string>

namespace zen {
namespace {

#ifdef ZEN_PTXAS_FOLDER
constexpr const char* kFolder = ZEN_PTXAS_FOLDER;
#else
constexpr const char* kFolder = nullptr;
#endif

TEST(Ptxas, no_kernel_spills) {
  if (kFolder == nullptr) GTEST_SKIP() << "nvcc was not found: no kernel was compiled for a GPU";
  const std::regex spills("([0-9]+) bytes spill stores, ([0-9]+) bytes spill loads");
  const std::regex registers("Used ([0-9]+) registers");
  int functions = 0;
  for (const auto& file : std::filesystem::directory_iterator(kFolder)) {
    if (file.path().extension() != ".ptxas") continue;
    int most = 0;
    std::ifstream lines(file.path());
    for (std::string line; std::getline(lines, line);) {
      std::smatch match;
      if (std::regex_search(line, match, registers)) most = std::max(most, std::stoi(match[1]));
      if (!std::regex_search(line, match, spills)) continue;
      ++functions;
      EXPECT_EQ(match[1], "0") << file.path() << ": " << line;
      EXPECT_EQ(match[2], "0") << file.path() << ": " << line;
    }
    EXPECT_GT(most, 0) << file.path();
    std::cout << file.path().stem().string() << ": at most " << most << " registers\n";
  }
  EXPECT_GT(functions, 30);  // kernels, for three architectures
}

}  // namespace
}  // namespace zen
