// Tokens and passwords: from the environment, or from `forge login`, which keeps them in
// credentials.json in the config folder, readable by its owner alone. They are never logged.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace forge {

struct Credential {
    std::string user;    // "": `secret` is a token that is sent as it is
    std::string secret;
};

std::filesystem::path credentials_file();
std::optional<Credential> stored_credential(const std::string& host);
void store_credential(const std::string& host, const Credential& credential);
bool forget_credential(const std::string& host);  // false when there was none

// For the Hugging Face hub at `host`: HF_TOKEN, HUGGING_FACE_HUB_TOKEN, `forge login`, the token file
// of other tools (HF_TOKEN_PATH, else token in HF_HOME); "" when there is none.
std::string hub_token(const std::string& host);
// For a registry at `host` ("name" or "name:port"): FORGE_REGISTRY_USER and FORGE_REGISTRY_TOKEN
// where FORGE_REGISTRY is this host, else `forge login`.
std::optional<Credential> registry_credential(const std::string& host);

std::string base64(const std::string& bytes);

}  // namespace forge
