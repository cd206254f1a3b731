-- Section: audit


-- Section: sensitive states


-- Section: personal data
-- None here: data keys are in a file of their own (`stores/key_file.py`).


-- Section: retention


-- Section: authorization

