// The metal-emu command: what it prints and its exit status.
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "emu_test.h"

namespace metal_emu::test {
namespace {

constexpr const char* kFile = R"(#include <metal_stdlib>
#include <metal_tensor>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
using namespace metal;
using namespace mpp::tensor_ops;
constant uint kFactor [[function_constant(2)]];
kernel void scale(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) { y[i] = x[i] * (float)kFactor; }
kernel void late(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], threadgroup float* t [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]]) {
    t[i] = x[i];
    y[i] = t[31 - i];
}
kernel void lanes(device float* y [[buffer(0)]], ushort lane [[thread_index_in_simdgroup]]) {
    simdgroup_float8x8 m = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    m.thread_elements()[0] = (float)lane;
    simdgroup_store(m, y, 8);
}
kernel void multiply(tensor<device const half, dextents<int, 2>> a [[buffer(0)]], tensor<device const half, dextents<int, 2>> b [[buffer(1)]], tensor<device float, dextents<int, 2>> c [[buffer(2)]]) {
    matmul2d<matmul2d_descriptor(16, 32, 16), execution_simdgroup> op;
    op.run(a, b, c);
}
)";

class Command : public testing::Test {
  protected:
    void SetUp() override {
        std::string reason;
        if (!compiler_available(&reason)) GTEST_SKIP() << reason;
        file_ = std::filesystem::temp_directory_path() / ("command-test-" + std::to_string(getpid()) + ".metal");
        std::ofstream(file_) << kFile;
    }
    void TearDown() override { std::filesystem::remove(file_); }
    // Exit status; output_ has what it printed.
    int run(const std::string& command, const std::string& rest) {
        output_.clear();
        FILE* pipe = popen((std::string(METAL_EMU_COMMAND) + " " + command + " " + file_.string() + " " + rest + " 2>&1").c_str(), "r");
        char line[1000];
        while (std::fgets(line, sizeof line, pipe)) output_ += line;
        const int status = pclose(pipe);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    bool says(const std::string& text) const { return output_.find(text) != std::string::npos; }

    std::filesystem::path file_;
    std::string output_;
};

TEST_F(Command, ChecksAndLists) {
    EXPECT_EQ(run("check", ""), 0) << output_;
    EXPECT_TRUE(says("late(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], threadgroup float* t [[threadgroup(0)]], uint i)")) << output_;
    std::ofstream(file_) << "#include <metal_stdlib>\nkernel void k(device float* x [[buffer(0)]]) {\n    x[0] = nothing;\n}\n";
    EXPECT_EQ(run("check", ""), 1);
    EXPECT_TRUE(says(":3:")) << output_;
}

TEST_F(Command, RunsAndShows) {
    EXPECT_EQ(run("run", "scale --constant 2=3 --grid 2 --threads 4 -b 0=f32:1,2,3,4,5,6,7,8 -b 1=f32*8 --show 1=8"), 0) << output_;
    EXPECT_EQ(output_, "3 6 9 12 15 18 21 24\n");
    EXPECT_EQ(run("run", "scale --constant 2=3 --threads 4 --touched -b 0=f32*8:ones -b 1=f32*8"), 0) << output_;
    EXPECT_TRUE(says("buffer 0: 16 of 32 bytes read, 0 written\nbuffer 1: 0 of 32 bytes read, 16 written")) << output_;
    EXPECT_EQ(run("run", "multiply -b 0=f16*5x3:ones -b 1=f16*2x5:ones -b 2=f32*2x3 --show 2=6"), 0) << output_;
    EXPECT_EQ(output_, "5 5 5 5 5 5\n");
}

TEST_F(Command, FindingsAreItsStatus) {
    EXPECT_EQ(run("run", "late --checked -b 0=f32*32 -b 1=f32*32 -t 0=128"), 1);
    EXPECT_TRUE(says("finding: race: read after unordered write")) << output_;
    EXPECT_TRUE(says(":10:")) << output_;
    EXPECT_EQ(run("run", "late --checked --seed 5 -b 0=f32*32 -b 1=f32*31 -t 0=128"), 1);
    EXPECT_TRUE(says("out-of-bounds device write")) << output_;
}

TEST_F(Command, ProfilesDiffer) {
    EXPECT_EQ(run("run", "lanes --profile m1 -b 0=f32*64 --show 0=16"), 0);
    const std::string m1 = output_;
    EXPECT_EQ(run("run", "lanes --profile m3 -b 0=f32*64 --show 0=16"), 0);
    EXPECT_NE(output_, m1);
}

TEST_F(Command, WrongUseIsNamed) {
    const std::pair<const char*, const char*> cases[] = {
        {"none -b 0=f32*4", "there is no kernel none; the file has scale, late, lanes, multiply"},
        {"scale -b 0=f32*4", "no buffer is bound at index 1 (y)"},
        {"scale -b 0=f99*4 -b 1=f32*4", "'f99'"},
        {"scale -b 0=f32*0 -b 1=f32*4", "a count is a number from 1 on"},
        {"scale -b 0=f32:1,x -b 1=f32*4", "'x' is no number"},
        {"scale -b 77=f32*4", "an index below 31"},
        {"scale --constant 9=1 -b 0=f32*4 -b 1=f32*4", "no function constant of index 9"},
        {"scale --threads 2048 -b 0=f32*4 -b 1=f32*4", "from 1 to 1024 threads"},
        {"scale --grid 0 -b 0=f32*4 -b 1=f32*4", "the grid is empty"},
        {"scale --profile m9 -b 0=f32*4 -b 1=f32*4", "m9"},
        {"late -b 0=f32*4 -b 1=f32*4", "the length of threadgroup memory 0 (t) is not given"},
        {"multiply -b 0=f16:1,2 -b 1=f16*4 -b 2=f32*4", "describe its extents"},
        {"scale -b 0=f32*4:@/no/such/file -b 1=f32*4", "/no/such/file"},
    };
    for (const auto& [rest, words] : cases) {
        EXPECT_EQ(run("run", rest), 2) << rest;
        EXPECT_TRUE(says(words)) << rest << ": " << output_;
    }
    EXPECT_EQ(run("--help", ""), 0);
    EXPECT_TRUE(says("Examples:")) << output_;
    EXPECT_EQ(run("rum", ""), 2);
}

}  // namespace
}  // namespace metal_emu::test
