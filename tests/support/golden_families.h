// The families that the golden tests compare with their references: all that the program can read.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace moeflux::testing {

/// The model types of the registry, each the name of a folder of tests/golden/models, and
/// golden_variants(), in the order of their names; without other_spellings(). A new family is among
/// them by itself, and its tests fail until it has a golden.
std::vector<std::string> golden_families();

/// False where the run's filter names one case, as ctest's do, and `part` is not in that name.
/// Parameters that no case of the run can have are left out with it: naming some 5,000 cases takes
/// longer than most of them.
bool may_be_asked(std::string_view part);
/// The families among `families` with may_be_asked().
std::vector<std::string> asked(std::vector<std::string> families);

/// Model types that one golden cannot tell from another: the same code reads them.
const std::map<std::string, std::string>& other_spellings();

/// Further goldens by their folders, and the model types they are of: what one golden of these
/// leaves out.
const std::map<std::string, std::string>& golden_variants();

/// The families among them whose residual has several streams: their goldens hold `streams` and
/// `collapsed` in the place of `hidden_states`.
std::vector<std::string> families_of_several_streams();
/// The others.
std::vector<std::string> families_of_one_stream();

/// Whether it has no experts.
bool is_dense(const std::string& family);
/// `families` without experts.
std::vector<std::string> dense_families(std::vector<std::string> families = golden_families());
/// `families` with experts.
std::vector<std::string> moe_families(std::vector<std::string> families = golden_families());

/// Folders of tests/golden/mtp: models with a layer that predicts further tokens.
std::vector<std::string> mtp_families();

std::string golden_folder(const std::string& family);

}  // namespace moeflux::testing
