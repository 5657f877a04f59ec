// What the tuner chose, on disk: used again as long as nothing that it depends on has changed.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace forge::tune {

struct Choice {
    std::string site;              // site_name()
    int rows = 0;                  // the bucket
    std::string variant;
    double seconds = 0;            // when it was chosen
    bool standard = true;          // the backend's default
    bool operator==(const Choice&) const = default;
};

// A record serves where all of this is the same.
struct RecordKey {
    std::string device, driver, version, shape, dtype;
    bool operator==(const RecordKey&) const = default;
};

// A timing that is taken again on every start: when it has drifted, the others have too.
struct Sentinel {
    std::string site;
    int rows = 0;
    double seconds = 0;            // the least of several; 0: nothing takes long enough to tell
};

struct Record {
    RecordKey key;
    bool full = false;             // tuned with --tune full
    std::vector<Choice> choices;
    Sentinel sentinel;
};

// Where a record lies: a file for each device, model shape and type, so that a new driver's replaces the old one's.
std::filesystem::path record_path(const std::filesystem::path& folder, const RecordKey& key);

// Nothing, with the reason as the end of a sentence ("the driver was ..., and is ..."), where there is none for the key. A
// file that cannot be understood is said in a warning.
std::optional<Record> load_record(const std::filesystem::path& folder, const RecordKey& key, std::string* why);

// Written beside its place and renamed. A folder that cannot be written is said in a warning: the next start tunes again.
void save_record(const std::filesystem::path& folder, const Record& record);

}  // namespace forge::tune
