#include "model/mixers/no_mixer.h"

namespace moeflux {

std::unique_ptr<Mixer> NoMixerSpec::take(WeightStore&, const MixerPlace&) const { return nullptr; }

}  // namespace moeflux
