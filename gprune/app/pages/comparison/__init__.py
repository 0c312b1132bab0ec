"""The page Compare: methods of runs, studies made here, and the paper."""
