#include "transport/credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "base/error.h"

namespace forge {
namespace {

namespace fs = std::filesystem;

class CredentialsTest : public testing::Test {
  protected:
    CredentialsTest() {
        std::string name = (fs::temp_directory_path() / "forge-login-XXXXXX").string();
        if (!mkdtemp(name.data())) throw std::runtime_error("mkdtemp failed");
        home_ = name;
        setenv("FORGE_HOME", name.c_str(), 1);
        setenv("HF_HOME", (home_ / "hf").c_str(), 1);
        for (const char* unwanted : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "FORGE_REGISTRY", "FORGE_REGISTRY_TOKEN", "FORGE_REGISTRY_USER"}) unsetenv(unwanted);
    }
    ~CredentialsTest() override {
        fs::remove_all(home_);
        unsetenv("FORGE_HOME");
        unsetenv("HF_HOME");
    }
    fs::path home_;
};

TEST_F(CredentialsTest, KeptForTheOwnerAlone) {
    umask(0);
    EXPECT_EQ(stored_credential("h"), std::nullopt);
    store_credential("h", {"ada", "secret"});
    store_credential("o:5000", {"", "token"});
    umask(022);
    struct stat status {};
    ASSERT_EQ(stat(credentials_file().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
    EXPECT_EQ(stored_credential("h")->user, "ada");
    EXPECT_EQ(stored_credential("h")->secret, "secret");
    EXPECT_TRUE(forget_credential("h"));
    EXPECT_FALSE(forget_credential("h"));
    EXPECT_EQ(stored_credential("h"), std::nullopt);
    EXPECT_EQ(stored_credential("o:5000")->secret, "token");
}

TEST_F(CredentialsTest, HubTokens) {
    EXPECT_EQ(hub_token("huggingface.co"), "");
    fs::create_directories(home_ / "hf");
    std::ofstream(home_ / "hf/token") << "from-file\n";
    EXPECT_EQ(hub_token("huggingface.co"), "from-file");
    store_credential("huggingface.co", {"", "stored"});
    EXPECT_EQ(hub_token("huggingface.co"), "stored");
    EXPECT_EQ(hub_token("other"), "from-file");
    setenv("HF_TOKEN", " from-environment\n", 1);
    EXPECT_EQ(hub_token("huggingface.co"), "from-environment");
    unsetenv("HF_TOKEN");
}

TEST_F(CredentialsTest, RegistryTokensGoToTheirHostAlone) {
    setenv("FORGE_REGISTRY", "h:5000", 1);
    setenv("FORGE_REGISTRY_USER", "ada", 1);
    setenv("FORGE_REGISTRY_TOKEN", "secret", 1);
    EXPECT_EQ(registry_credential("h:5000")->secret, "secret");
    EXPECT_EQ(registry_credential("h"), std::nullopt);
    for (const char* name : {"FORGE_REGISTRY", "FORGE_REGISTRY_TOKEN", "FORGE_REGISTRY_USER"}) unsetenv(name);
}

TEST_F(CredentialsTest, ABrokenFileIsNamed) {
    fs::create_directories(credentials_file().parent_path());
    std::ofstream(credentials_file()) << "[1]";
    EXPECT_THROW(stored_credential("h"), Error);
    std::ofstream(credentials_file()) << "{\"h\": 7, \"i\": {\"secret\": 7}}";
    EXPECT_EQ(stored_credential("h"), std::nullopt);
    EXPECT_EQ(stored_credential("i"), std::nullopt);
}

TEST(Base64, KnownValues) {
    EXPECT_EQ(base64(""), "");
    EXPECT_EQ(base64("f"), "Zg==");
    EXPECT_EQ(base64("fo"), "Zm8=");
    EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
    EXPECT_EQ(base64("\xff\xfe\xfd"), "//79");
}

}  // namespace
}  // namespace forge
