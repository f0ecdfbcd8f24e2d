"""Every shape annotation holds at run time. In a process of its own: the import hook has to see the first import."""

import subprocess
import sys
from pathlib import Path


def test_annotations_hold_over_a_whole_pipeline():
    script = Path(__file__).with_name("typed_pipeline.py")
    run = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert run.stdout == "annotations are checked and hold\n", run.stderr[-3000:]
