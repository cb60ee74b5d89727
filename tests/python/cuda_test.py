"""The Python package of a CUDA build opens cuda:0: a token where there is a GPU, else an error."""

import os
import pathlib
import unittest

import moeflux

FABLE = pathlib.Path(__file__).resolve().parents[2] / "models" / "fable-20m"
HAS_GPU = os.path.exists("/dev/nvidiactl")


class CudaTest(unittest.TestCase):
    @unittest.skipUnless(HAS_GPU, "hardware: no NVIDIA GPU")
    def test_a_gpu_generates_a_token(self):
        with moeflux.Model(FABLE, device="cuda:0", context_length=64) as model, \
                model.sequence() as sequence:
            self.assertTrue(model.info["device"].startswith("cuda:0"), model.info["device"])
            done = sequence.generate("Once upon a time", max_tokens=1)
            self.assertEqual(done.generated_tokens, 1)

    @unittest.skipIf(HAS_GPU, "there is a GPU")
    def test_without_a_gpu_the_error_names_the_device_and_what_is_missing(self):
        with self.assertRaisesRegex(moeflux.NotFoundError, "cuda:0: .*(driver|device)"):
            moeflux.Model(FABLE, device="cuda:0")

    def test_a_number_no_machine_has_is_an_error(self):
        with self.assertRaisesRegex(moeflux.Error, "cuda:99"):
            moeflux.Model(FABLE, device="cuda:99")


if __name__ == "__main__":
    unittest.main()
